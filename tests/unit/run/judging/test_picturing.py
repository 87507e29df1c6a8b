"""What a picture keeps of a play written by hand."""

import msgspec
import numpy as np
from miniatures.library import subject
from miniatures.plays import NOISE, Script
from miniatures.right import ContinuousBatching
from miniatures.wrong import AttendsToPadding

from conformance.core.numerics import margins
from conformance.core.picture import Compared
from conformance.core.trace import Failure, ProbeResult
from conformance.core.verdict import Finding, Verdict
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.run.judging.picturing import picture_of
from conformance.scenarios import LADDER

WRONG = Finding(Verdict.DRIFT, "forced", "off", schedule="by_hand", mode="forced", request_id="b")


def drawn(script, *findings):
    return picture_of([script.play()], findings or (WRONG,))


def test_each_request_has_its_stages_and_each_step_its_calls():
    picture = drawn(Script())
    assert (picture.schedule, picture.mode, picture.steps, picture.rows) == (
        "by_hand",
        "forced",
        8,
        3,
    )
    assert {lane.request_id: lane.stages for lane in picture.lanes} == {
        "a": "1q5d1f",
        "b": "1q3d1f",
        "c": "1q2d1x",
    }
    assert picture.calls == ("3x2", "3x1", "3x1", "2x1", "1x1", "1x1", "", "")


def test_the_request_that_the_worst_finding_names_is_compared():
    script = Script()
    script.forced.move("b", 1, 1.0, token=2)
    compared = drawn(script).compared
    want = script.want["b"]
    assert compared == Compared(
        "b",
        expected=want.tokens,
        got=want.tokens,
        mode="forced",
        difference=(0.0, 1.0, 0.0),
        noise=(NOISE,) * 3,
        margin=tuple(float(f"{m:.3g}") for m in margins(want.logprobs)),
        bad=1,
    )


def test_tokens_are_those_that_the_engine_chose_and_numbers_go_on_behind_the_first_other_one():
    script = Script()
    other = (script.want["a"].tokens[1] + 1) % 8
    script.free.change("a", 1, token=other)
    compared = drawn(script, msgspec.structs.replace(WRONG, request_id="a", mode="free")).compared
    assert compared.got[1] == other
    assert compared.mode == "forced"
    assert len(compared.difference) == 5


def test_of_a_cancelled_request_no_more_is_expected_than_came_out():
    script = Script()
    compared = drawn(script, msgspec.structs.replace(WRONG, request_id="c")).compared
    assert compared.expected == compared.got == script.want["c"].tokens[:2]
    assert len(compared.noise) == len(compared.margin) == 2


def test_a_number_that_is_not_finite_is_left_out():
    script = Script()
    script.forced.move("b", 2, np.nan)
    assert drawn(script).compared.difference == (0.0, 0.0, None)


def test_the_worst_finding_decides_and_one_that_names_nobody_is_drawn_by_the_next():
    nobody = Finding(Verdict.LEAK, "leak", "held", schedule="by_hand")
    milder = msgspec.structs.replace(WRONG, request_id="c")
    assert drawn(Script(), milder, nobody).compared.request_id == "c"
    worse = msgspec.structs.replace(nobody, request_id="a")
    assert drawn(Script(), milder, worse).compared.request_id == "a"
    assert drawn(Script(), nobody).compared.request_id == "a"
    stranger = msgspec.structs.replace(WRONG, request_id="uid 9")
    assert drawn(Script(), stranger).compared.request_id == "a"


def test_probes_and_an_early_end_are_reported():
    script = Script()
    script.forced.moments[2].probes.append(ProbeResult("unknown_uid", None))
    script.forced.failure = Failure("ValueError", "shapes", "mlx_lm/x.py:1", "step 8")
    picture = drawn(script)
    assert picture.probes == ((2, "unknown_uid"),)
    assert picture.stopped == "ValueError in step 8"
    script.forced.failure, script.forced.out_of_steps = None, True
    assert drawn(script).stopped == "the step bound was reached"


def judged(engine):
    toy = subject()
    scenario = next(s for s in LADDER if s.name == "staggered")
    return judge_batched(toy, engine, scenario, scenario.make(brief_for(toy, engine, 0)))


def test_a_wrong_case_has_a_picture_and_a_right_one_none():
    assert judged(ContinuousBatching).picture is None
    wrong = judged(AttendsToPadding).picture
    assert wrong.compared.bad is not None
    pieces = {lane.request_id: sum(n for _, n in lane.pieces) for lane in wrong.lanes}
    assert all(pieces.values())
    assert wrong.cache_bytes
