"""What several routes say of their answers."""

from typing import Final

from outlast.gateway import given
from outlast.gateway.route import Gives

REPLAYED: Final = "The same key had done it before; the answer has `Idempotent-Replayed: true`."
OPEN: Final = Gives(says="It has not ended yet.", shape=given.OpenOut)
UNCHANGED: Final = Gives(says="It has not changed since the caller read it (If-None-Match).", shape=None)
TAKEN: Final = {
    202: Gives(says="It is recorded.", shape=given.AcceptedOut),
    200: Gives(says="There was nothing to do.", shape=given.AcceptedOut),
}
