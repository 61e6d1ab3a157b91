"""A converter with codecs below it."""

from collections.abc import Sequence
from typing import Any

from outlast.core.errors import Refusal
from outlast.core.failure import Failure
from outlast.core.payload import Payload, is_withheld
from outlast.protocol.codecs import Chain, Unreadable
from outlast.protocol.opening import Opener
from outlast.protocol.seals import sealed
from outlast.sdk.converter import Converter, Stored, bounded, lost
from outlast.sdk.definition import Parameters
from outlast.sdk.errors import NotReadable, NotSerializable


class CodedConverter(Converter):
    """What ``inner`` writes, coded by ``chain``. Values that were written without it are read as well."""

    def __init__(self, inner: Converter, chain: Chain) -> None:
        self._inner = inner
        self._chain = chain
        self._opener = Opener(chain)
        self._seals = chain.encrypts

    def opened(self, value: Stored) -> Stored:
        return self._opener.open(value)

    def sealed(self, failure: Failure) -> Failure:
        return sealed(failure, self._chain) if self._seals else failure

    def logged(self, error: BaseException | str, failure: Failure) -> BaseException | str:
        return failure.type if self._seals else error

    def to_payload(self, value: Any, *, path: str, declared: Any = Any) -> Payload:
        return self._coded(self._inner.to_payload(value, path=path, declared=declared), path)

    def to_attribute(self, value: Any, *, path: str) -> Payload:
        return self._inner.to_attribute(value, path=path)

    def from_payload(self, payload: Payload, type: Any = Any, *, path: str = "value") -> Any:
        return self._inner.from_payload(self._read(payload, path), type, path=path)

    def arguments_to_payloads(
        self, parameters: Parameters, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Payload, ...]:
        payloads = self._inner.arguments_to_payloads(parameters, args, kwargs)
        return tuple([self._coded(payload, _named(parameters, n)) for n, payload in enumerate(payloads)])

    def payloads_to_arguments(
        self, parameters: Parameters, payloads: Sequence[Payload]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        read = [self._read(payload, _named(parameters, n)) for n, payload in enumerate(payloads)]
        return self._inner.payloads_to_arguments(parameters, read)

    def _coded(self, payload: Payload, path: str) -> Payload:
        try:
            coded = self._chain.encode(payload)
        except Refusal as error:
            raise NotSerializable(f"{path} cannot be coded. {error.fact}", path=path, remedy=error.remedy) from error
        return bounded(coded, path, when=" when it is coded")

    def _read(self, payload: Payload, path: str) -> Payload:
        if payload.blob or is_withheld(payload):
            raise lost(payload, path)
        try:
            return self._chain.decode(payload)
        except Unreadable as error:
            fact = f"{path} cannot be read. {error.fact}"
            raise NotReadable(fact, path=path, remedy=error.remedy, code=error.code) from None


def _named(parameters: Parameters, place: int) -> str:
    return parameters.names[place] if place < len(parameters.names) else f"argument {place + 1}"
