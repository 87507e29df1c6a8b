"""One cause is one finding."""

from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.verdict import Verdict
from conformance.tools.explore.causes import Causes
from conformance.tools.explore.results import Discovery, Explored, ExploreUnit, Maker

SCHEDULE = Schedule("s", (Arrival((Request("a", (1,), 1),)),))


def found(verdict, what, seed=0, family="llama"):
    discovery = Discovery(
        "mlx_lm", family, "float32", verdict, "check", what, 1, Maker.SCHEDULES, True, 0.0,
        SCHEDULE, SCHEDULE,
    )  # fmt: skip
    return Explored(ExploreUnit("mlx_lm", family, "float32", seed, 1), discoveries=(discovery,))


def test_a_cause_from_a_second_seed_is_counted_and_not_shown_again():
    causes = Causes()
    assert len(causes.new(found(Verdict.DIVERGED, "by 0.1")).discoveries) == 1
    again = causes.new(found(Verdict.DRIFT, "by 0.01", seed=1))
    assert (again.discoveries, again.again) == ((), 1)


def test_other_families_exceptions_and_checks_are_other_causes():
    causes = Causes()
    for one in (
        found(Verdict.CRASH, "the engine raised ValueError: x 1"),
        found(Verdict.CRASH, "the engine raised IndexError: x 1"),
        found(Verdict.CRASH, "the engine raised ValueError: x 1", family="mamba"),
        found(Verdict.PROTOCOL, "says 1"),
        found(Verdict.DIVERGED, "by 1"),
    ):
        assert len(causes.new(one).discoveries) == 1
    assert causes.new(found(Verdict.CRASH, "the engine raised ValueError: x 2")).again == 1
