"""Values that only the app can read: encrypted before they leave it, and the store holds nothing of them in the clear.

    python -m examples.secret_orders

Its store is secret.db in the folder where you are, its key is in the file ``keys``. Look into it without the key, then with it:

    outlast task list --store sqlite:///secret.db
    OUTLAST_PAYLOADS__CODECS=zstd,encrypt OUTLAST_PAYLOADS__KEYS=file:keys outlast task list --store sqlite:///secret.db
"""

import secrets
from dataclasses import dataclass
from pathlib import Path

from outlast import App, Encrypt, KeyRing, Zstd

KEYS = Path("keys")
STORE = Path("secret.db")


@dataclass
class Order:
    card: str
    cents: int


def keys() -> KeyRing:
    """Return the keys of the file, which is made with one key the first time."""
    if not KEYS.exists():
        KEYS.touch(mode=0o600)
        KEYS.write_text(f"first {secrets.token_hex(32)}\n")
    return KeyRing.from_file(str(KEYS))


app = App(f"sqlite:///{STORE}", codecs=[Zstd(), Encrypt(keys())])


@app.task
def charge(order: Order) -> str:
    """Charge the card of an order."""
    return f"{order.card} paid {order.cents / 100:.2f}"


def main() -> None:
    """Charge a card, then look for its number in the files of the store."""
    with app:
        print(charge.enqueue(Order("visa-4242", 700)).result(timeout="10s"))
    found = [path.name for path in Path().glob(f"{STORE}*") if path.is_file() and b"visa-4242" in path.read_bytes()]
    print("the card's number is in:", ", ".join(found) or "no file")
    if found:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
