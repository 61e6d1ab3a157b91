"""Where large payloads are kept: beside the store, in a folder, or in object storage, as the settings say."""

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

from outlast.core.errors import Invalid
from outlast.server.sources import Sources
from outlast.store.base import BlobStore
from outlast.store.blobs import FileBlobStore

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Store

S3: Final = "s3://"
FOLDER: Final = "file:///"
BLOBS_IN: Final = (S3, FOLDER)
FORMS: Final = "Write s3://BUCKET, s3://BUCKET/PREFIX or file:///FOLDER."
REGION: Final = "us-east-1"  # what those who speak like S3 take when they have no regions

RETRIES: Final = 5
RETRY_WITHIN: Final = timedelta(seconds=20)  # a caller waits for its answer meanwhile
ANSWER_WITHIN: Final = "15s"
CONNECT_WITHIN: Final = "5s"


@dataclass(frozen=True, slots=True)
class BlobPlace:
    """``url`` empty: beside the store. What is secret is in no ``repr``."""

    url: str = ""
    endpoint: str = ""
    region: str = ""
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)


BESIDE: Final = BlobPlace()


def place_from(sources: Sources) -> BlobPlace:
    """Return the place that settings name. Raises Invalid, naming the source of what is wrong."""
    url, endpoint = sources.text("blobs"), sources.text("s3.endpoint")
    if url.startswith(S3):
        parts = urlsplit(url)
        if not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
            raise sources.wrong("blobs", FORMS)
        if endpoint and not endpoint.startswith(("http://", "https://")):
            raise sources.wrong("s3.endpoint", "Write https://HOST, or http://HOST:PORT for one nearby.")
        if bool(sources.text("s3.access_key")) != bool(sources.text("s3.secret_key")):
            raise Invalid(
                "invalid_request",
                "s3.access_key and s3.secret_key are not both given.",
                remedy="Give both, or neither to take what AWS tools would take.",
            )
    elif url and not (url.startswith(FOLDER) and len(url) > len(FOLDER)):
        raise sources.wrong("blobs", FORMS)
    return BlobPlace(
        url,
        endpoint,
        sources.text("s3.region"),
        sources.text("s3.access_key"),
        sources.text("s3.secret_key"),
        sources.text("s3.session_token"),
    )


def blobs_at(place: BlobPlace, *, beside: str, owner: Callable[[], Awaitable[str]]) -> BlobStore:
    """Return the blobs at ``place``; ``beside`` is the folder that the store itself would have for them.

    ``owner`` gives the id under which the store owns any other place. Raises Invalid when what the place needs is not installed.
    """
    if place.url.startswith(FOLDER):
        folder = Path(place.url.removeprefix("file://"))
        if beside and folder.resolve() == Path(beside).resolve():
            return FileBlobStore(beside)
        return FileBlobStore(folder, owner=owner)
    if not place.url:
        return FileBlobStore(beside)
    try:
        from outlast.store.objects import ObjectBlobStore
    except ImportError:
        raise Invalid(
            "invalid_request",
            f"Payloads are to be kept in {place.url}, which needs the package obstore.",
            remedy="pip install 'outlast[s3]'",
        ) from None
    return ObjectBlobStore(s3_of(place), place=place.url, owner=owner)


def s3_of(place: BlobPlace, environ: Mapping[str, str] = os.environ) -> "S3Store":
    """Return the client of a place in S3. Nothing is asked of it yet."""
    from obstore.store import S3Store

    parts = urlsplit(place.url)
    config = {
        "endpoint": place.endpoint,
        "access_key_id": place.access_key,
        "secret_access_key": place.secret_key,
        "session_token": place.session_token,
        "region": place.region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or REGION,
    }
    return S3Store(
        parts.netloc,
        prefix=parts.path.strip("/") or None,
        config=cast("S3Config", {name: text for name, text in config.items() if text}),
        client_options={
            "allow_http": place.endpoint.startswith("http://"),
            "timeout": ANSWER_WITHIN,
            "connect_timeout": CONNECT_WITHIN,
        },
        retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_WITHIN},
    )
