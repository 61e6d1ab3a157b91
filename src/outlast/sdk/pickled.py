"""Values that have no JSON form, by pickle: only for an app that asks for it by name and says that it knows what that means.

Who can write to the store, or send to the server, can then run code in every worker and in every program that reads a result.
No server, command or other app ever reads a pickle.
"""

import pickle
from typing import Any, Final

from outlast.core.payload import Payload, is_withheld
from outlast.sdk.converter import PICKLE, Converter, bounded
from outlast.sdk.errors import NotReadable, NotSerializable
from outlast.sdk.misuse import BadDeclaration

PROTOCOL: Final = 5  # of pickle: the same bytes from every Python that is served


class Pickle(Converter):
    """The default converter, and pickle for what has no JSON form: ``App(converter=Pickle(i_understand=True))``."""

    def __init__(self, *, i_understand: bool = False) -> None:
        if i_understand is not True:
            raise BadDeclaration(
                "pickle_not_understood",
                "Pickle(…) reads code: who can write to the store, or send to the server, runs what they like in every worker.",
                remedy="If all of them may do that anyway: Pickle(i_understand=True). Else pass data that has a JSON form.",
            )

    def to_payload(self, value: Any, *, path: str, declared: Any = Any) -> Payload:
        """Return ``value`` as JSON where it has such a form, else by pickle. Raises as the default converter."""
        try:
            return super().to_payload(value, path=path, declared=declared)
        except NotSerializable as no_json:
            try:
                data = pickle.dumps(value, protocol=PROTOCOL)
            except Exception as error:  # noqa: BLE001 - whatever the value or its class raises
                raise NotSerializable(
                    f"{path} can be written neither as JSON nor by pickle: {type(error).__name__}: {error}",
                    path=path,
                    remedy=no_json.remedy,
                ) from None
            return bounded(Payload(PICKLE, data), path)

    def from_payload(self, payload: Payload, type: Any = Any, *, path: str = "value") -> Any:
        """Return the value in ``payload``, whichever way it was written. Raises as the default converter."""
        if payload.encoding != PICKLE or payload.blob or is_withheld(payload):
            return super().from_payload(payload, type, path=path)
        try:
            return pickle.loads(payload.data)  # noqa: S301 - opt-in, see above
        except Exception as error:  # noqa: BLE001 - as above
            raise NotReadable(
                f"{path} cannot be read by pickle: {error.__class__.__name__}: {error}",
                path=path,
                remedy="The class must be where it was when the value was written, with what it had then.",
            ) from None
