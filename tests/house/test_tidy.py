"""How the code is written: sizes, first sentences, names, and what has no place in a repository."""

import ast
from pathlib import Path

import pytest

from tests.house.sources import functions_of, lines_with, modules, names_of, text_of, tree_of, words_of

FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 500
TEST_NAME_WORDS_MIN = 4

# One word means one thing (STYLE.md). Each of these has another name here.
BANNED = {
    "tenant": "namespace",
    "tenants": "namespaces",
    "job": "task",
    "jobs": "tasks",
    "orchestrate": "run",
    "orchestration": "workflow",
    "orchestrator": "engine",
    "partition": "shard",
    "partitions": "shards",
    "serializer": "converter",
    "serializers": "converters",
    "execution": "run",
    "executions": "runs",
    "journal": "history",
}
# The undo journal of an input is the core's own; SQLite calls its log a journal.
UNDO_HOMES = ("src/outlast/core/", "src/outlast/store/sqlite/", "tests/core/", "tests/store/")
# What says nothing about what is in it.
BANNED_MODULES = {"utils", "util", "common", "helpers", "helper", "misc", "manager", "service"}


def is_banned(path: Path, word: str, name: str) -> bool:
    """Say whether ``word`` has no place in ``name``."""
    if word == "journal" and str(path).startswith(UNDO_HOMES):
        return False
    if word in {"execution", "executions"} and "workflow" in words_of(name):
        return False  # the field's names of events and codes: WorkflowExecutionStarted
    return word in BANNED


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{path}:{function.lineno} {function.name} has {function.end_lineno - function.lineno + 1} lines"
        for path in modules()
        for function in functions_of(path)
        if function.end_lineno is not None and function.end_lineno - function.lineno + 1 > FUNCTION_LINES_MAX
    ]

    assert not long, "\n".join(long)


def test_no_module_is_longer_than_its_bound() -> None:
    long = [
        f"{path} has {lines} lines"
        for path in modules()
        if (lines := len(text_of(path).splitlines())) > MODULE_LINES_MAX
    ]

    assert not long, "\n".join(long)


def test_each_module_begins_with_what_it_is_for() -> None:
    silent = [str(path) for path in modules() if text_of(path).strip() and not ast.get_docstring(tree_of(path))]

    assert not silent, "\n".join(silent)


def test_names_use_the_words_of_the_house() -> None:
    wrong = [
        f"{path}:{line} {name}: say {BANNED[word]}, not {word}"
        for path in modules()
        for line, name in names_of(path)
        for word in words_of(name)
        if is_banned(path, word, name)
    ]

    assert not wrong, "\n".join(wrong)


def test_names_of_modules_say_what_is_in_them() -> None:
    vague = [str(path) for path in modules() if BANNED_MODULES & {path.stem, *path.parts[:-1]}]

    assert not vague, "\n".join(vague)


def test_names_of_tests_are_sentences() -> None:
    short = [
        f"{path}:{function.lineno} {function.name}"
        for path in modules()
        if path.parts[0] == "tests"
        for function in functions_of(path)
        if function.name.startswith("test_") and len(words_of(function.name)) - 1 < TEST_NAME_WORDS_MIN
    ]

    assert not short, "\n".join(short)


@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"\b(TOD[O]|FIXM[E]|XX[X]|HAC[K])\b(?!\(#\d+\))", id="a note of what is to be done has a number"),
        pytest.param(
            r"pyp[i]\.org|pythonhoste[d]|npmj[s]\.|/opt/(pyp[i]|wheel[s])", id="no host of a package registry"
        ),
        pytest.param(r"/(root|home|Users)/[\w.]|/wor[k]/\w|/tm[p]/brief", id="no path of one machine"),
        pytest.param(
            r"\bshare[d]/(design|cases)|\bissue[s] show\b|\bfiled by a sessio[n]", id="no word of a workplace"
        ),
        pytest.param(
            r"\b(HOUS[E]|TEMPORA[L]|RELIABILIT[Y]|FEATURE[S]|DEPENDENCIE[S]|AP[I])(\.md| ?§)",
            id="no page that is not here",
        ),
    ],
)
def test_nothing_in_the_repository_says(pattern: str) -> None:
    found = lines_with(pattern)

    assert not found, "\n".join(found)
