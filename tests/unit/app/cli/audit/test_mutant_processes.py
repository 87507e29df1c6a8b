"""Mutants on a cluster: given out some at a time, and what becomes of a part that is lost."""

from conformance.app.cli.audit.mutant_processes import NO_COMPILE, Part, tried_by, try_part
from conformance.power.mutants.mutant_plan import Task
from conformance.report.mutants import Fate, Mutant, MutantResult


def task(line):
    mutant = Mutant(
        "toy/a.py", "f", "number", f"x = {line}", "x = 0", line, (line, line), 0, 1, "0"
    )
    return Task("toy", mutant, (), 1, frozenset())


class Crowd:
    """Workers that end once they try a certain mutant."""

    count = 2
    elsewhere = True

    def __init__(self, deadly):
        self.deadly, self.rounds = deadly, []

    def as_they_come(self, work, items, *, on_crash):
        assert work is try_part
        self.rounds.append([len(part.tasks) for part in items])
        for index, part in enumerate(items):
            if self.deadly in part.tasks:
                yield index, on_crash(part)
            else:
                yield (
                    index,
                    tuple(MutantResult(one.mutant, "toy", Fate.SURVIVED) for one in part.tasks),
                )


def test_what_ends_worker_after_worker_costs_no_other_mutant():
    tasks = [task(number) for number in range(1, 12)]
    crowd = Crowd(deadly=tasks[2])
    found = list(tried_by(crowd, tasks, seconds=None))
    assert crowd.rounds == [[8, 3], [1] * 8]
    assert sorted(r.mutant.line for r in found) == list(range(1, 12))
    (lost,) = [r for r in found if r.fate is not Fate.SURVIVED]
    assert (lost.mutant.line, lost.fate) == (3, Fate.INVALID)
    assert lost.why == "the workers that tried it ended"


def test_none_is_begun_once_the_time_is_over(monkeypatch):
    monkeypatch.setenv(NO_COMPILE, "1")  # as it leaves it
    assert try_part(Part((task(1),), until=0.0)) == ()
