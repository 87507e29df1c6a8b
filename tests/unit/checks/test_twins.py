"""Equal rows side by side."""

import msgspec
import numpy as np
import pytest
from miniatures.plays import NOISE, Script

from conformance.checks.twins import check_twins
from conformance.core.schedule import Arrival, Schedule, Stage
from conformance.core.token_choice import Sampler
from conformance.core.verdict import Verdict


def apart(by, *, script=None):
    script = script or Script(twins=True)
    script.free.move("twin", 2, by)
    return check_twins(script.play())


def test_equal_rows_with_equal_numbers_are_right():
    assert check_twins(Script(twins=True).play()) == []


@pytest.mark.parametrize(("by", "found"), [(0.5 * NOISE, 0), (4 * NOISE, 1), (np.nan, 1)])
def test_only_more_than_the_floor_distinguishes_them(by, found):
    assert len(apart(by)) == found


def test_the_finding_names_the_twin_and_the_step():
    (finding,) = apart(0.5)
    assert (finding.verdict, finding.request_id, finding.step) == (Verdict.DRIFT, "twin", 2)
    assert "'a'" in finding.expected


def test_others_are_no_twins():
    script = Script()
    script.free.move("b", 1, 0.5)
    assert check_twins(script.play()) == []


def test_rows_in_other_stages_share_no_pass():
    script = Script(twins=True)
    script.free.moments[1].stages["twin"] = Stage.QUEUED
    assert apart(0.5, script=script) == []


def test_rows_whose_prompts_were_cut_elsewhere_share_no_pass():
    script = Script(twins=True)
    script.free.moments[0].processed = {"a": 3, "twin": 1}
    assert apart(0.5, script=script) == []
    script = Script(twins=True)
    script.free.moments[0].processed = {"a": 3, "twin": 3}
    assert len(apart(0.5, script=script)) == 1


def test_rows_that_draw_lots_may_differ():
    script = Script(twins=True)
    requests = [
        msgspec.structs.replace(r, sampler=Sampler("temperature")) for r in script.schedule.requests
    ]
    schedule = Schedule("by_hand", (Arrival(tuple(requests)),))
    script.schedule = script.free.schedule = script.forced.schedule = schedule
    assert apart(0.5, script=script) == []
