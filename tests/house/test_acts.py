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
    "workflow.list": ("", "workflow list"),
    "workflow.count": ("", "workflow count"),
    "workflow.show": ("handle:WorkflowHandle.describe", "workflow show"),
    "workflow.history": ("", "workflow history"),
    "workflow.watch": ("", ""),
    "workflow.result": ("handle:WorkflowHandle.result", "workflow result"),
    "workflow.signal": ("handle:WorkflowHandle.signal", "workflow signal"),
    "workflow.query": ("handle:WorkflowHandle.query", "workflow query"),
    "workflow.cancel": ("handle:WorkflowHandle.cancel", "workflow cancel"),
    "workflow.terminate": ("handle:WorkflowHandle.terminate", "workflow terminate"),
    "task.enqueue": ("task:Task.enqueue", "task enqueue"),
    "task.enqueue_many": ("task:Task.enqueue_many", "task enqueue"),
    "task.list": ("", "task list"),
    "task.count": ("", "task count"),
    "task.show": ("handle:TaskHandle.describe", "task show"),
    "task.attempts": ("", "task attempts"),
    "task.result": ("handle:TaskHandle.result", "task result"),
    "task.cancel": ("handle:TaskHandle.cancel", "task cancel"),
    "queue.list": ("", "queue list"),
    "queue.show": ("", ""),
    "worker.list": ("", "worker list"),
    "namespace.list": ("", "namespace list"),
    "namespace.show": ("", "namespace show"),
    "namespace.create": ("", "namespace create"),
    "namespace.update": ("", "namespace update"),
    "namespace.delete": ("", "namespace delete"),
    "why": ("handle:WorkflowHandle.describe", "why"),
    "version": ("http:HttpTransport", "version"),
}

# What is not everywhere, and where it stands meanwhile.
ELSEWHERE = {
    ("workflow.list", "sdk"): "protocol.transport.Transport.list_runs",
    ("workflow.count", "sdk"): "protocol.transport.Transport.count_runs",
    ("workflow.history", "sdk"): "protocol.transport.Transport.read_history",
    ("workflow.watch", "sdk"): "read_history, page by page",
    ("workflow.watch", "cli"): "workflow show --watch",
    ("task.list", "sdk"): "protocol.transport.Transport.list_tasks",
    ("task.count", "sdk"): "protocol.transport.Transport.count_tasks",
    ("queue.list", "sdk"): "protocol.transport.Transport.list_queues",
    ("queue.show", "sdk"): "protocol.transport.Transport.list_queues",
    ("queue.show", "cli"): "REST",
    ("worker.list", "sdk"): "the request DescribeWorkers",
    ("namespace.list", "sdk"): "protocol.transport.Transport.list_namespaces",
    ("namespace.show", "sdk"): "protocol.transport.Transport.list_namespaces",
    ("namespace.create", "sdk"): "the request CreateNamespace",
    ("namespace.update", "sdk"): "the request UpdateNamespace",
    ("namespace.delete", "sdk"): "the request DeleteNamespace",
    ("task.attempts", "sdk"): "protocol.transport.Transport.read_attempts",
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
