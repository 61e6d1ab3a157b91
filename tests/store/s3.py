"""A server that speaks like S3, in this process and on loopback."""

import itertools
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from obstore.store import S3Store

from outlast.server.places import BlobPlace, s3_of

_NUMBERS = itertools.count()


@contextmanager
def s3_serving() -> Generator[str]:
    """Give the address of the server."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto: Any = import_module("moto.server")  # slow to load, and most tests of stores need none
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def s3_place(address: str, **changed: str) -> BlobPlace:
    """Return a place in a bucket that was made for it alone."""
    bucket = f"payloads-{os.getpid()}-{next(_NUMBERS)}"
    make_bucket(address, bucket)
    given = {"url": f"s3://{bucket}/of/shop", "endpoint": address, "access_key": "ada", "secret_key": "lovelace"}
    return BlobPlace(**{**given, **changed})


def make_bucket(address: str, bucket: str) -> None:
    """Make a bucket, which is a PUT of nothing to its name."""
    boto3: Any = import_module("boto3")  # slow to load, and only this needs it
    client = boto3.client(
        "s3", endpoint_url=address, aws_access_key_id="ada", aws_secret_access_key="lovelace", region_name="us-east-1"
    )
    client.create_bucket(Bucket=bucket)


def objects_at(place: BlobPlace) -> S3Store:
    """Return the objects of a place, to look at and to damage."""
    return s3_of(place, {})
