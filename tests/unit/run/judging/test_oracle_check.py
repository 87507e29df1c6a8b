"""The oracle against itself: what it must find in libraries that are wrong without any batch."""

import pytest
from miniatures.library import (
    ForgetfulLibrary,
    PieceworkLibrary,
    RestlessLibrary,
    ShakyLibrary,
    ToyLibrary,
    subject,
)
from miniatures.right import ContinuousBatching

from conformance.core.verdict import Verdict
from conformance.run.judging.judge import brief_for
from conformance.run.judging.oracle_check import judge_oracle
from conformance.scenarios.solo import RECHUNKED, REPEAT


def judge(library, scenario):
    toy = subject(library)
    return judge_oracle(toy, scenario.make(brief_for(toy, ContinuousBatching, 0)))


@pytest.mark.parametrize(
    ("library", "scenario", "verdict", "checks"),
    [
        (ToyLibrary, REPEAT, Verdict.EXACT, set()),
        (ToyLibrary, RECHUNKED, Verdict.EXACT, set()),
        (ShakyLibrary, REPEAT, Verdict.EXACT, set()),
        (ShakyLibrary, RECHUNKED, Verdict.EXACT, set()),
        (RestlessLibrary, REPEAT, Verdict.ORACLE, {"repeat", "stateless"}),
        (PieceworkLibrary, REPEAT, Verdict.EXACT, set()),
        (PieceworkLibrary, RECHUNKED, Verdict.ORACLE, {"rechunked", "stateless"}),
        (ForgetfulLibrary, REPEAT, Verdict.ORACLE, {"stateless"}),
    ],
)
def test_verdict(library, scenario, verdict, checks):
    outcome = judge(library(), scenario)
    assert outcome.verdict is verdict
    assert {finding.check for finding in outcome.findings} == checks


def test_a_stream_that_is_other_the_second_time_is_unstable():
    outcome = judge(RestlessLibrary(), REPEAT)
    found = [f for f in outcome.findings if f.check == "repeat"]
    assert {f.verdict for f in found} == {Verdict.UNSTABLE}
    assert {f.request_id for f in found} == {"r5", "r11", "r23", "image"}
    assert all(f.difference > f.noise for f in found)


def test_what_the_single_stream_gets_wrong_is_drawn_without_a_run():
    outcome = judge(RestlessLibrary(), REPEAT)
    picture = outcome.picture
    worst = next(f for f in outcome.findings if f.verdict is outcome.verdict)
    assert (picture.schedule, picture.steps, picture.lanes) == (worst.schedule, 0, ())
    compared = picture.compared
    assert (compared.request_id, compared.bad) == (worst.request_id, worst.step)
    assert compared.difference[worst.step] == pytest.approx(worst.difference, rel=1e-2)
    assert len(compared.margin) == len(compared.noise) == len(compared.difference)
    assert judge(ToyLibrary(), REPEAT).picture is None


def test_memory_is_dirtied_before_the_stream_is_made_again():
    library = ToyLibrary()
    judge(library, REPEAT)
    assert library.churns == 4


class LateLibrary(PieceworkLibrary):
    """Pieces show only from the third token on."""

    def logits(self, model, fed, options, *, alone):
        late = len(fed) >= alone + 2
        return super().logits(model, fed, options, alone=alone if late else 0)


def test_the_first_bad_step_is_reported():
    found = judge(LateLibrary(), RECHUNKED).findings
    assert {f.step for f in found} == {2}
    assert all(f.difference > f.noise for f in found)


def test_only_short_prompts_are_held_against_the_pass_without_a_cache():
    found = [f for f in judge(ForgetfulLibrary(), REPEAT).findings if f.check == "stateless"]
    assert {f.request_id for f in found} == {"r5", "r11", "image"}
    assert {f.step for f in found} == {0}


def test_each_request_has_its_figures():
    outcome = judge(ToyLibrary(), RECHUNKED)
    assert outcome.numbers.difference == 0.0
    assert [s.name for s in outcome.schedules] == ["rechunked"]
    assert outcome.schedules[0].forward_calls > 0
