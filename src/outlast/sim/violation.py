"""What a broken promise looks like."""


class Violation(Exception):
    """An invariant of ours does not hold. ``number`` is its number in the list of invariants, ``code`` its name here."""

    def __init__(self, number: int, code: str, detail: str) -> None:
        super().__init__(f"invariant {number} ({code}): {detail}")
        self.number = number
        self.code = code
        self.detail = detail


def require(condition: object, number: int, code: str, detail: object) -> None:
    """Raise Violation unless ``condition`` holds; ``detail`` is formatted only then."""
    if not condition:
        raise Violation(number, code, str(detail))
