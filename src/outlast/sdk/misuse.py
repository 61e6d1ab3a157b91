"""What a caller can do wrong with the SDK, each with a code, the fact and the way out."""

from outlast.sdk.errors import OutlastError


class Misuse(OutlastError):
    """The SDK was used in a way that cannot work; nothing was sent. ``code`` is for programs, ``remedy`` for people."""

    def __init__(self, code: str, fact: str, *, remedy: str) -> None:
        super().__init__(fact, remedy=remedy, code=code)


class NotStarted(Misuse):
    """The app has no engine at the moment."""


class NotBound(Misuse):
    """The task or workflow belongs to no app."""


class StartedAtImport(Misuse):
    """A module starts an app while it is being imported for its tasks and workflows."""


class Blocked(Misuse):
    """A blocking verb was called where it would stop the very thread that has to answer it."""


class UnknownOption(Misuse, TypeError):
    """An option that there is not, or a value that it cannot have."""


class BadDeclaration(Misuse, TypeError):
    """A function that cannot be a task or a workflow as it is written."""


class NotYet(Misuse, NotImplementedError):
    """Something that this release does not do."""
