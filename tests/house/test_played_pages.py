"""Pages that show commands are played as a reader would: every command is typed, and what is shown must be printed."""

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.house.sources import ROOT, text_of, tracked_files
from tests.store.cluster import Cluster
from tools.pages import Reader, Step, steps_of
from tools.readme import blocks_of
from tools.shown import agree
from tools.splice import splice

TUTORIAL = [Path("docs/tutorial", name) for name in ("first-workflow.md", "failures.md", "waiting.md", "running.md")]
ON_A_DATABASE = Path("docs/guides/postgres.md")
GUIDES = [
    page
    for page in tracked_files()
    if page.parts[:2] == ("docs", "guides")
    and page != ON_A_DATABASE
    and page.suffix == ".md"
    and any(block.kind == "console" for block in blocks_of(text_of(page)))
]


def faults_of(
    folder: Path, *pages: Path, patience: float = 120.0, variables: Mapping[str, str] | None = None
) -> list[str]:
    """Read the pages in ``folder``; return the first thing that is not so."""
    with Reader(folder, patience=patience, variables=variables) as reader:
        for page in pages:
            for fault in reader.read(page):
                return [fault]
    return []


def faults_of_text(folder: Path, text: str) -> list[str]:
    """Read a page with this text."""
    page = folder / "page.md"
    page.write_text(text)
    return faults_of(folder, page, patience=3.0)


def test_every_chapter_of_the_tutorial_is_played() -> None:
    assert {page for page in tracked_files() if page.parts[:2] == ("docs", "tutorial")} == set(TUTORIAL)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tutorial_can_be_typed_in_chapter_after_chapter(tmp_path: Path) -> None:
    assert faults_of(tmp_path, *(ROOT / page for page in TUTORIAL)) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_can_be_typed_in(page: Path, tmp_path: Path) -> None:
    assert faults_of(tmp_path, ROOT / page) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_guide_to_postgresql_can_be_typed_in_on_a_server(tmp_path: Path) -> None:
    with Cluster("fsync=on", "full_page_writes=on") as durable:
        store = {"OUTLAST_STORE": durable.url(durable.empty_database())}

        assert faults_of(tmp_path, ROOT / ON_A_DATABASE, variables=store) == []
        assert not list(tmp_path.glob("*.db"))  # it was the database that was used


BROKEN = {
    "output": ("```console\n$ echo one\ntwo\n```\n", "did not print what the page shows"),
    "more": ("```console\n$ printf 'one\\ntwo\\n'\none\n```\n", "did not print what the page shows"),
    "nothing": ("```console\n$ echo one\n```\n", "did not print what the page shows"),
    "failing": ("```console\n$ false\n```\n", "ended with 1, not 0"),
    "succeeding": ("```console ends=1\n$ true\n```\n", "ended with 0, not 1"),
    "code": ("```python title=a.py\nprint(1/0)\n```\n\n```console\n$ python a.py\n1\n```\n", "ended with 1"),
    "endless": ("```console\n$ sleep 30\n```\n", "did not end within"),
    "silent": ("```console runs\n$ sleep 30\nready\n```\n", "did not print what the page shows"),
    "interrupted": (
        "```console runs\n$ sh -c 'echo begun; exec cat'\nbegun\n```\n\n```console\n^C\nbye\n```\n",
        "did not print what the page shows",
    ),
    "unknown kind": ("```ruby\nputs 1\n```\n", "cannot be proven"),
    "elsewhere": ("```console as=README.md\n$ make everything\n```\n", "does not stand in README.md"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BROKEN)
def test_a_page_that_is_not_true_is_found_with_its_line(kind: str, tmp_path: Path) -> None:
    text, said = BROKEN[kind]

    (fault,) = faults_of_text(tmp_path, f"# A page\n\n{text}")

    assert f"{tmp_path}/page.md:" in fault
    assert said in fault


@pytest.mark.slow
def test_a_page_that_is_true_is_read_to_its_end(tmp_path: Path) -> None:
    text = (
        "```console\n$ echo 12.5 s, process 4711@here\n9 ms, process 1@vm\n$ echo killed 1\nkilled 4711\n```\n"
        "\n```console terminal=2 runs\n$ sh -c 'echo begun; exec cat'\nbegun\n```\n\n```console terminal=2\n^C\n```\n"
    )

    assert faults_of_text(tmp_path, text) == []
    assert not list(tmp_path.glob("*.py"))


@pytest.mark.slow
def test_a_program_of_a_page_hears_an_interrupt_that_its_starter_ignores(tmp_path: Path) -> None:
    heard = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        text = "```console runs\n$ sh -c 'echo begun; exec cat'\nbegun\n```\n\n```console\n^C\n```\n"
        assert faults_of_text(tmp_path, text) == []
    finally:
        signal.signal(signal.SIGINT, heard)


def test_a_console_block_is_read_as_steps() -> None:
    text = "shown before\n$ one \\\n> two\nthree\n^C\nfour\n"

    assert steps_of(text) == [
        Step(None, ["shown before"]),
        Step("one \\\ntwo", ["three"]),
        Step("^C", ["four"]),
    ]


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["order-1  ready"], "order-1     ready\n"),
        (["took 2 m 3 s, at 30 Nov 2026 11:40:36"], "took 9 ms, at 01 Jan 2027 00:00:00\n"),
        (["..."], ""),
        (["a", "...", "d"], "a\nb\nc\nd\n"),
        (["a ... d"], "a b c d\n"),
        (["at /srv/shop/shop.py:7"], "at /srv/x/shop.py:7\n"),
    ],
)
def test_what_differs_each_time_may_differ(shown: list[str], printed: str) -> None:
    assert agree(shown, printed, {}, whole=True) is not None


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["order-1"], "order-2\n"),
        (["took 2 s"], "took long\n"),
        (["a", "d"], "a\nb\nd\n"),
        (["shop.py:7"], "shop.py:8\n"),
        ([], "a warning\n"),
    ],
)
def test_what_matters_may_not_differ(shown: list[str], printed: str) -> None:
    assert agree(shown, printed, {}, whole=True) is None


def test_an_id_of_the_page_is_remembered_by_the_one_that_was_printed() -> None:
    known: dict[str, str] = {}

    agree(
        ["task 01a22c41-ba03-72e6-ba67-1834ad127076"], "task 01a22c41-ffff-72e6-ba67-1834ad127076\n", known, whole=True
    )

    assert known == {"01a22c41-ba03-72e6-ba67-1834ad127076": "01a22c41-ffff-72e6-ba67-1834ad127076"}


def test_statements_take_the_place_of_those_with_their_name() -> None:
    program = 'import os\n\nx = 1\n\n\ndef f() -> int:\n    return 1\n\n\nif __name__ == "__main__":\n    print(f())\n'
    change = "import sys\n\n\n@cached\ndef f() -> int:\n    return 2\n\n\ndef g() -> None: ...\n"

    spliced = splice(program, change)

    assert spliced == (
        "import os\nimport sys\n\n\nx = 1\n\n\n@cached\ndef f() -> int:\n    return 2\n\n\n"
        'def g() -> None: ...\n\n\nif __name__ == "__main__":\n    print(f())\n'
    )
