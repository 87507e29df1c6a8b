"""Every check finds something that no other check does, or it would have to go."""

import msgspec
import numpy as np
import pytest
from miniatures.plays import Script

from conformance.checks import CHECKS
from conformance.schedule import Drafting, EngineOptions
from conformance.trace import Failure, ForwardCall, ProbeResult, TokenEvent
from conformance.verdict import Verdict


def nothing(script): ...


def crash(script):
    script.free.failure = Failure("RuntimeError", "shapes", "mlx_lm/generate.py:9", "step 4")


def hang(script):
    script.forced.out_of_steps = True


def nan_when_forced(script):
    script.forced.move("a", 0, np.nan, token=2)
    script.repeat_forced().move("a", 0, np.nan, token=2)


def all_masked_but_alike(script):
    """The oracle has it, too, so that no difference is left to see."""
    script.want["a"].logprobs[1] = -np.inf
    for take in (script.forced, script.free):
        take.move("a", 1, -np.inf)


def stranger(script):
    script.free.moments[2].events.append(TokenEvent("unknown uid 9", 3))


def lost_first_token(script):
    moment, place = script.forced.event("b", 0)
    del moment.events[place]


def small_drift(script):
    for take in (script.forced, script.free):
        take.move("b", 1, 1e-3)


def other_token_on_equal_numbers(script):
    """As if the argmax were taken of another row."""
    script.free.change("b", 1, token=(script.want["b"].tokens[1] + 1) % 8)


def rubbish_in_the_repetition(script):
    script.repeat_forced().move("b", 1, 0.5)


def ghost_row(script):
    script.free.moments[6].forwards = [ForwardCall(1, 1)]


def bytes_held(script):
    script.forced.held = 512


def accepted(script):
    script.free.moments[2].probes = [ProbeResult("empty_prompt", None)]


def another_policy(script):
    """A batch of one that is right, and a single stream of the library's that is not the same."""
    script.__init__(alone=True)
    script.policy = script.want["a"].logprobs + np.float32(1e-3)


def draft_that_foresees_nothing(script):
    options = EngineOptions(drafting=Drafting("draft_model"))
    script.schedule = msgspec.structs.replace(script.schedule, options=options)
    script.free.moments[2].drafted = {"a": 3}


V = Verdict
FIRES = {
    nothing: set(),
    crash: {("failure", V.CRASH)},
    hang: {("failure", V.HANG)},
    nan_when_forced: {("nonfinite", V.NAN), ("forced", V.DRIFT)},
    all_masked_but_alike: {("nonfinite", V.NAN)},
    stranger: {("protocol", V.PROTOCOL)},
    lost_first_token: {("protocol", V.PROTOCOL), ("forced", V.DRIFT)},
    small_drift: {("forced", V.DRIFT)},
    other_token_on_equal_numbers: {("free", V.DIVERGED)},
    rubbish_in_the_repetition: {("stability", V.UNSTABLE)},
    ghost_row: {("leak", V.LEAK)},
    bytes_held: {("leak", V.LEAK)},
    accepted: {("probe", V.PROTOCOL)},
    draft_that_foresees_nothing: {("drafts", V.DRIFT)},
    another_policy: {("policy", V.POLICY)},
}


def fires(plant):
    script = Script()
    plant(script)
    play = script.play()
    return {(f.check, f.verdict) for check in CHECKS for f in check(play)}


@pytest.mark.parametrize("plant", FIRES, ids=lambda p: p.__name__)
def test_a_planted_fault_is_found_by_these_checks(plant):
    assert fires(plant) == FIRES[plant]


def test_every_check_alone_finds_some_fault():
    alone = {next(iter(found))[0] for found in FIRES.values() if len(found) == 1}
    names = {check.__module__.rpartition(".")[2] for check in CHECKS}
    assert alone == names
    assert len(names) == len(CHECKS)
