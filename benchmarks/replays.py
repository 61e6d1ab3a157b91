"""How many events of a history does a worker replay in a second, for a run that it does not have in memory?

Estimate before measuring: an activity is four events of a history and one step of a coroutine: some 60 us in all for commands
to be made anew, compared, and resolved. So about 60,000 events a second.
"""

from benchmarks import replay
from benchmarks.figures import Figure


def measure(*, full: bool) -> list[Figure]:
    """Return activities one after another, and a hundred beside each other."""
    count = 1_000 if full else 400
    figures: list[Figure] = []
    for function, name in ((replay.one_after_another, "one after another"), (replay.in_groups, "a hundred at once")):
        stage, _ = replay.play(function, count)
        value = replay.replays(stage, function)
        figures.append(Figure(name=f"events replayed, {name}", value=value, wanted=40_000))
    return figures
