"""The pages that are made from the code say what the code says."""

import pytest

from tests.house.sources import ROOT
from tools.references import PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    page = (ROOT / "docs" / "reference" / name).read_text()

    assert page == PAGES[name](), "run `make references`"
