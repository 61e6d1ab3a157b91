"""Every act exists in REST, in the SDK and on the command line; what one of them lacks is written down here, with why."""

from importlib import import_module

import pytest

from outlast.cli.parser import VERBS
from outlast.gateway.table import ROUTES

WORDS = {" ".join(verb.words) for verb in VERBS}
REST = {route.act for route in ROUTES if not route.wire}

# act: (in the SDK, on the command line); "" where it is not yet
ACTS = {
    "workflow.start": ("workflows:Workflow.start", "workflow start"),
    "workflow.list": ("lists:Workflows.list", "workflow list"),
    "workflow.count": ("lists:Workflows.count", "workflow count"),
    "workflow.show": ("handle:WorkflowHandle.describe", "workflow show"),
    "workflow.history": ("handle:WorkflowHandle.history", "workflow history"),
    "workflow.watch": ("handle:WorkflowHandle.watch", "watch"),
    "workflow.result": ("handle:WorkflowHandle.result", "workflow result"),
    "workflow.signal": ("handle:WorkflowHandle.signal", "workflow signal"),
    "workflow.query": ("handle:WorkflowHandle.query", "workflow query"),
    "workflow.cancel": ("handle:WorkflowHandle.cancel", "workflow cancel"),
    "workflow.terminate": ("handle:WorkflowHandle.terminate", "workflow terminate"),
    "task.enqueue": ("task:Task.enqueue", "task enqueue"),
    "task.enqueue_many": ("task:Task.enqueue_many", "task enqueue"),
    "task.list": ("lists:Tasks.list", "task list"),
    "task.count": ("lists:Tasks.count", "task count"),
    "task.show": ("handle:TaskHandle.describe", "task show"),
    "task.attempts": ("handle:TaskHandle.attempts", "task attempts"),
    "task.result": ("handle:TaskHandle.result", "task result"),
    "task.cancel": ("handle:TaskHandle.cancel", "task cancel"),
    "task.retry": ("handle:TaskHandle.retry", "task retry"),
    "task.retry_many": ("lists:Tasks.retry", "task retry"),
    "queue.list": ("capacity:Queues.list", "queue list"),
    "queue.show": ("capacity:Queues.describe", "queue show"),
    "worker.list": ("capacity:Workers.list", "worker list"),
    "namespace.list": ("namespaces:Namespaces.list", "namespace list"),
    "namespace.show": ("namespaces:Namespaces.describe", "namespace show"),
    "namespace.create": ("namespaces:Namespaces.create", "namespace create"),
    "namespace.update": ("namespaces:Namespaces.update", "namespace update"),
    "namespace.delete": ("namespaces:Namespaces.delete", "namespace delete"),
    "feed": ("app:App.feed", "feed"),
    "why": ("handle:WorkflowHandle.describe", "why"),
    "version": ("http:HttpTransport", "version"),
}

# What is not everywhere, and where it stands meanwhile.
ELSEWHERE: dict[tuple[str, str], str] = {}

# What is no act of its own anywhere but in the SDK and in SQL, and why.
IN_SDK_ALONE = {
    "task:Task.using": "tx= is a transaction that the caller has open: nothing that comes over HTTP can be part of it",
    "workflows:Workflow.using": "as for tasks; outlast.enqueue and outlast.start are the way of SQL",
}


@pytest.mark.parametrize("place", IN_SDK_ALONE)
def test_what_only_the_sdk_can_do_is_there(place: str) -> None:
    module, _, names = place.partition(":")
    kind, _, verb = names.partition(".")

    assert "tx" in (getattr(getattr(import_module(f"outlast.sdk.{module}"), kind), verb).__doc__ or "")
    assert "transaction" not in " ".join(WORDS | REST)


# Acts on a store that no engine serves, or beside the one that does: on the command line alone, with why.
ON_STORES = {
    "move": "nobody may work on either store meanwhile, so that there is no engine to ask for it",
    "restore": "the store takes no work meanwhile, so that there is no engine to ask for it",
    "migrate": "an engine refuses a store of another schema, so that there is none to ask for it",
    "backup": "the file lies on the disk of whoever keeps it, and is read from the store itself, past the engine and its rights",
}


def test_the_list_of_acts_is_the_table_of_routes() -> None:
    assert set(ACTS) == REST


@pytest.mark.parametrize("act", ACTS)
def test_an_act_is_in_the_sdk_or_it_is_said_why_not(act: str) -> None:
    place = ACTS[act][0]

    assert bool(place) is ((act, "sdk") not in ELSEWHERE)
    if place:
        module, _, names = place.partition(":")
        value: object = import_module(f"outlast.sdk.{module}")
        for name in names.split("."):
            value = getattr(value, name)
        assert value.__doc__


@pytest.mark.parametrize("act", ACTS)
def test_an_act_is_on_the_command_line_or_it_is_said_why_not(act: str) -> None:
    words = ACTS[act][1]

    assert bool(words) is ((act, "cli") not in ELSEWHERE)
    assert not words or words in WORDS
    assert words or act.replace(".", " ") not in WORDS, "it is there by now: write it down"


@pytest.mark.parametrize("act", ON_STORES)
def test_an_act_on_a_store_is_on_the_command_line_alone(act: str) -> None:
    assert act in WORDS
    assert act not in REST, "it is there by now: write it down among the acts"
    assert ON_STORES[act]
