"""A release in parts: its families are shared out, and what comes back is one column."""

from results_by_hand import make_result

from conformance.app.cli.release_runner import Ran, run_on_cluster, run_part
from conformance.tools.releases.pins import Release, parse_pins
from conformance.tools.releases.release_run import Choice, Column

OLD, NEW = Release("mlx-lm", "0.31.2"), Release("mlx-lm", "0.31.3")
FAMILIES = ("llama", "mamba", "mamba2")


def result(family):
    return make_result(f"mlx_lm/{family}/ragged/float32/0")


class Crowd:
    """Six threads of a cluster; they give the last part first, and lose what has ``lost``."""

    count = 6
    elsewhere = True

    def __init__(self, lost=""):
        self.lost, self.parts = lost, []

    def as_they_come(self, work, items, *, on_crash):
        assert work is run_part
        self.parts = list(items)
        for index, part in reversed(list(enumerate(items))):
            families = part.choice.families if part.choice.cases else ()
            if self.lost in families:
                yield index, on_crash(part)
            elif part.release == NEW and part.choice.cases:
                yield index, Ran(Column(NEW, problem="cannot be run: no such module"))
            else:
                lines = ("{}",) if part.choice.caches else ()
                yield index, Ran(Column(part.release, tuple(map(result, families))), lines)


def played(crowd):
    choice = Choice(families=FAMILIES, scenarios=("ragged",), caches=True)
    notes = []
    found = run_on_cluster(
        (OLD, NEW), choice, parse_pins(()), crowd, lambda *note: notes.append(note)
    )
    return {ran.column.release: ran for ran in found}, notes


def test_each_family_is_in_one_part_and_the_parts_together_are_the_release():
    crowd = Crowd()
    found, notes = played(crowd)
    old = [part.choice for part in crowd.parts if part.release == OLD]
    assert sorted(f for choice in old if choice.cases for f in choice.families) == list(FAMILIES)
    assert [(choice.cases, choice.caches) for choice in old] == [
        (False, True),
        *[(True, False)] * 3,
    ]
    assert {choice.tier for choice in old if choice.cases} == {"full"}  # as families are named
    assert [result.family for result in found[OLD].column.results] == list(FAMILIES)
    assert found[OLD].caches == ("{}",)
    assert notes[-1] == (OLD, 4, 4)


def test_a_release_that_cannot_be_run_says_so_once_and_has_nothing_else():
    found, _ = played(Crowd())
    assert found[NEW] == Ran(Column(NEW, problem="cannot be run: no such module"))


def test_a_part_whose_workers_ended_is_named_beside_what_the_others_gave():
    found, _ = played(Crowd(lost="mamba"))
    assert [result.family for result in found[OLD].column.results] == ["llama", "mamba2"]
    assert found[OLD].column.problem == "cannot be run: the workers that ran it ended"
