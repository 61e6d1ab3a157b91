"""What a list or a count asks for: the plain options, and the filter language put together from the others."""

from outlast.cli.arguments import Arguments
from outlast.cli.given import sources
from outlast.cli.text import clean
from outlast.core.errors import Invalid
from outlast.protocol.transport import ANY_RUNS, ANY_TASKS, RunsAsked, TasksAsked


def runs_asked(arguments: Arguments) -> RunsAsked:
    """Return which runs the options ask for. Raises Invalid."""
    return RunsAsked(type=arguments.type, status=arguments.status, query=_query(arguments, "started"))


def tasks_asked(arguments: Arguments) -> TasksAsked:
    """Return which tasks the options ask for. Raises Invalid."""
    return TasksAsked(
        type=arguments.type,
        state=arguments.state,
        queue=arguments.queue,
        run_id=arguments.run,
        query=_query(arguments, "enqueued"),
    )


def no_runs(arguments: Arguments) -> str:
    """Return what is said of a list of workflows without a row."""
    return _none(arguments, "workflow", is_narrow=runs_asked(arguments) != ANY_RUNS)


def no_tasks(arguments: Arguments) -> str:
    """Return what is said of a list of tasks without a row."""
    return _none(arguments, "task", is_narrow=tasks_asked(arguments) != ANY_TASKS)


def _none(arguments: Arguments, noun: str, *, is_narrow: bool) -> str:
    """Say where it was looked, and how to look wider."""
    where = f'in namespace "{clean(sources(arguments).text("namespace"))}"'
    wider = "Other namespaces: outlast namespace list"
    if not is_narrow:
        return f"There is no {noun} {where}. {wider}"
    return f"No {noun} {where} fits what was asked for. All of them: outlast {noun} list. {wider}"


def _query(arguments: Arguments, began: str) -> str:
    parts = [f"({arguments.query})"] if arguments.query else []
    for text in arguments.tag:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise Invalid("invalid_request", f'--tag is "{text}".', remedy="Write --tag NAME=VALUE.")
        parts.append(f"tag.{_quoted(name)} = {_quoted(value)}")
    if arguments.since:
        parts.append(f"{began} >= {_instant(arguments.since)}")
    # Alone the text goes as it was written, so that an error's column is the one that was typed.
    return arguments.query if len(parts) == 1 and arguments.query else " and ".join(parts)


def _instant(text: str) -> str:
    """A span means so long ago; anything else is an instant as the filter language has it."""
    words = text.split()
    return f"{words[0]} ago" if len(words) == 1 and words[0][-1:].isalpha() and words[0][-1:] in "smhdw" else text


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
