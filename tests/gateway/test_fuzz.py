"""A little of what ``make fuzz`` asks; and that the fuzzer sees what it looks for."""

from typing import Any

import pytest

from outlast.gateway.routes import server
from outlast.gateway.table import ROUTES
from tests.gateway.fuzz import fuzz

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_no_request_is_answered_by_a_fault_of_ours_or_against_the_document() -> None:
    findings, logged, statuses = fuzz(500, seed=3)

    assert findings == []
    assert logged == []
    assert {200, 201, 202, 400, 404} <= set(statuses)


def test_the_fuzzer_finds_an_answer_that_is_not_in_the_document() -> None:
    route = next(route for route in ROUTES if route.operation == "getServer")

    async def broken(exchange: Any) -> Any:
        answer = await server.info(exchange)
        answer.body = answer.body.replace(b'"version"', b'"versoin"')
        return answer

    object.__setattr__(route, "handler", broken)
    try:
        findings, _, _ = fuzz(200, seed=3)
    finally:
        object.__setattr__(route, "handler", server.info)

    assert any("version" in finding.says for finding in findings)
