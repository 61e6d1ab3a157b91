"""What the verbs of tasks and workflows do when they are given a transaction of the caller's with ``using(tx=…)``."""

from collections.abc import Sequence

from outlast.core.inputs import EnqueueTask, StartWorkflow
from outlast.sdk.misuse import BadDeclaration, Misuse
from outlast.sdk.runtime import current_runtime


def write_in(tx: object, namespace: str, items: Sequence[EnqueueTask | StartWorkflow], *, instead: str) -> None:
    """Write ``items`` into the transaction of a blocking connection; raises as Transaction.write."""
    if items:
        from outlast.sdk.transaction import Transaction  # noqa: PLC0415 - most programs use none

        Transaction(tx).write(namespace, items, instead=instead)


async def awrite_in(tx: object, namespace: str, items: Sequence[EnqueueTask | StartWorkflow]) -> None:
    """As ``write_in``, by an asynchronous connection or one that blocks."""
    if items:
        from outlast.sdk.transaction import Transaction  # noqa: PLC0415 - as above

        await Transaction(tx).awrite(namespace, items)


def refuse_enclosed(name: str, *, key: str) -> None:
    """Refuse what cannot be done in a caller's transaction. Raises Misuse or BadDeclaration."""
    if current_runtime() is not None:
        raise Misuse(
            "transaction_in_workflow",
            f"Workflow code used {name}.using(tx=…).",
            remedy="Do it in a task: it has connections, and the workflow awaits it.",
        )
    if key:
        raise BadDeclaration(
            "key_in_transaction",
            f"{name}.using(tx=…) has the key {key!r}: which task it stands for is not known before the engine is asked.",
            remedy="Name it by id= instead: the same id makes one.",
        )


def refuse_wait(tx: object | None, verb: str) -> None:
    """Refuse to wait in a transaction for what comes only after it. Raises Misuse."""
    if tx is not None:
        raise Misuse(
            "waits_for_itself",
            f"{verb} in a transaction would wait for what is there only once it has committed.",
            remedy="Enqueue or start it, commit, then await handle.aresult().",
        )
