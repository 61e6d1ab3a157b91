"""The tool that runs the README: it reads every block, and finds the page that is not true."""

from pathlib import Path

import pytest

from tools.readme import Block, Place, Untrue, blocks_of, commands_of, has_lines, play


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, tmp_path, {"PATH": "/usr/bin:/bin"})


def test_blocks_are_read_in_order_with_their_words() -> None:
    page = "# A\n\n```python title=app.py\nx = 1\n```\n\ntext\n\n```console\n$ ls\n```\n"

    assert blocks_of(page) == [
        Block("python", 3, "x = 1\n", {"title": "app.py"}),
        Block("console", 9, "$ ls\n", {}),
    ]


def test_a_console_block_gives_commands_and_what_they_print() -> None:
    text = "$ make demo   # half a minute\n...\ndemo ok\n$ ls\n"

    assert commands_of(text) == [("make demo", ["...", "demo ok"]), ("ls", [])]


def test_dots_stand_for_anything_printed_between() -> None:
    assert has_lines("a\nb\nc\n", ["a", "...", "c"])
    assert not has_lines("a\nb\n", ["a", "...", "c"])


def test_a_command_that_prints_something_else_is_untrue(place: Place) -> None:
    with pytest.raises(Untrue, match="did not print"):
        play(Block("console", 1, "$ echo one\ntwo\n"), place)


def test_a_command_that_fails_is_untrue(place: Place) -> None:
    with pytest.raises(Untrue, match="ended with 3"):
        play(Block("bash", 1, "exit 3\n"), place)


def test_a_block_of_an_unknown_kind_is_refused(place: Place) -> None:
    with pytest.raises(Untrue, match="cannot be proven"):
        play(Block("ruby", 1, "puts 1\n"), place)


def test_a_titled_block_is_written_to_its_file(place: Place) -> None:
    play(Block("python", 1, "print('hello')\n", {"title": "app.py"}), place)

    assert (place.folder / "app.py").read_text() == "print('hello')\n"
