"""The same workloads on Outlast and on its peers, by turns in one run; the table is kept in benchmarks/results/peers.md.

    python -m benchmarks.peers [--peers restate,pgqueuer,absurd,dbos] [--size small|full] [--only WORKLOAD] [--keep FOLDER]

In each round every contender is started anew on a fresh store, asked for its figures, and stopped, so that nothing of another
one runs beside it. A peer that cannot be installed or started is in the table with the reason. Exit code 1 when something
that is wanted is missed, or a contender gave no figure.
"""

import argparse
import sys
from pathlib import Path

from benchmarks import machine
from benchmarks.peers.contender import CONTENDERS, Contender, Failed, Seat
from benchmarks.peers.environment import PACKAGES, Environment, NotInstalled, prepare
from benchmarks.peers.report import Report, Turn, shown
from benchmarks.peers.workloads import BY_NAME

RESULTS = Path(__file__).resolve().parents[1] / "results"
ROUNDS = {"small": 2, "full": 3}
SECONDS = {"small": 1.5, "full": 5.0}  # of one turn
WARM_UP = 0.5  # seconds, of which nothing is kept


def main() -> int:
    """Return 0 if every contender gave its figures and what is wanted is met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peers", default=",".join(PACKAGES), help="names with commas between them")
    parser.add_argument("--size", choices=list(ROUNDS), default="full")
    parser.add_argument("--only", choices=list(BY_NAME), action="append", help="nothing is kept then")
    parser.add_argument("--keep", type=Path, default=RESULTS, help="folder for peers.md and peers.json")
    chosen = parser.parse_args()
    peers = [name for name in chosen.peers.split(",") if name]
    if unknown := [name for name in peers if name not in PACKAGES]:
        parser.error(f"there is no peer {unknown[0]!r}; there are: {', '.join(PACKAGES)}")
    report = Report(chosen.size)
    environments = installed(peers, report)
    for number in range(1, ROUNDS[chosen.size] + 1):
        for contender in CONTENDERS:
            if not contender.peer or contender.peer in environments:
                play(contender, environments.get(contender.peer), report, number, chosen.only or list(BY_NAME))
                if not chosen.only:
                    report.keep(chosen.keep)  # so that a run which is cut short has said what it found
    print("\n" + "\n".join(report.lines()))
    failed = report.absent or [turn for turn in report.turns if turn.error]
    return 1 if failed or report.missed() else 0


def installed(peers: list[str], report: Report) -> dict[str, Environment]:
    """Return the environments of the peers that can be had."""
    found: dict[str, Environment] = {}
    for peer in peers:
        try:
            found[peer] = prepare(peer)
        except NotInstalled as reason:
            print(f"{peer}: not installed: {reason}", flush=True)
            report.absent[peer] = f"not installed: {reason}"
    return found


def play(
    contender: Contender, environment: Environment | None, report: Report, number: int, workloads: list[str]
) -> None:
    """Have a contender's figures of one round."""
    if contender.name in report.absent:
        return
    try:
        with Seat(contender, environment) as seat:
            report.about[contender.name] = seat.about
            for workload in workloads:
                if workload in seat.workloads:
                    take(seat, contender, workload, report, number)
    except Failed as reason:
        print(f"{contender.name}: not started: {reason}", flush=True)
        if contender.name not in report.about:
            report.absent[contender.name] = f"not started: {reason}"


def take(seat: Seat, contender: Contender, workload: str, report: Report, number: int) -> None:
    """Have one figure, after a short turn to warm up in the first round of a workload that is no time."""
    turn = Turn(contender=contender.name, workload=workload, round=number)
    try:
        if not BY_NAME[workload].lower:
            seat.ask(workload, WARM_UP)
        turn.syncs, turn.others_before = machine.syncs_now(), machine.busy_cores()
        others = machine.Others()
        turn.value = seat.ask(workload, SECONDS[report.size])
        turn.others_during = others.cores()
        said = shown(turn.value, BY_NAME[workload])
    except Failed as reason:
        turn.error = str(reason)
        said = f"no figure: {reason}"
    report.turns.append(turn)
    print(
        f"{number} {contender.name:<22} {workload:<15} {said:>14}   "
        f"{turn.syncs:,.0f} fsync/s, others {turn.others_before:.1f} / {turn.others_during:.1f} cores",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
