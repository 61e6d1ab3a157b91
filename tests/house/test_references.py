"""The pages that are made from the code say what the code says."""

import pytest

import outlast
from outlast.sdk import errors
from tests.house.sources import ROOT
from tools import sdk_page
from tools.references import PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    page = (ROOT / "docs" / "reference" / name).read_text()

    assert page == PAGES[name](), "run `make references`"


def test_whatever_can_be_imported_is_on_the_page_of_it() -> None:
    page = sdk_page.page()
    names = {*outlast.__all__, *errors.__all__} - {"workflow", "exception_of", "failure_of"}

    assert [name for name in sorted(names) if f"\n### {name}\n" not in page] == []
    assert "\n### workflow.sleep\n" in page


def test_whatever_a_program_may_catch_can_be_imported_from_the_package() -> None:
    of_workers = {"HistoryGap", "WorkflowTaskFailure", "exception_of", "failure_of"}

    assert {*errors.__all__} - of_workers <= {*outlast.__all__}
    assert all(getattr(outlast, name) is getattr(errors, name) for name in {*errors.__all__} - of_workers)


class Bare:
    """A class with a method that says nothing."""

    def act(self) -> None: ...


def test_what_has_no_docstring_cannot_be_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sdk_page.SHELVES, "Tasks", (Bare,))

    with pytest.raises(sdk_page.Untold, match=r"Bare\.act has no docstring"):
        sdk_page.page()


def test_a_docstring_becomes_prose_and_a_list_of_what_is_raised() -> None:
    page = sdk_page.page()

    assert "### TaskHandle.result\n\n```text\nresult(timeout: Duration | None = None) -> R\n```\n\nReturn what" in page
    assert "- `TimeoutError`: it has not ended in time. It goes on.\n" in page
