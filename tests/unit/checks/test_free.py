"""The first other token of a free run: a tie, or a divergence."""

import dataclasses

import msgspec
import numpy as np
import pytest
from miniatures.plays import NOISE, Script

from conformance.checks.free import check_free
from conformance.core.numerics import FACTOR, Envelope
from conformance.core.schedule import Arrival, Continuation, Schedule
from conformance.core.token_choice import Sampler
from conformance.core.verdict import Verdict


def other_token(script, name, step, *, moved=0.0, lowered=0.0):
    """Let the free run choose the runner-up at a step, its logprob moved by ``moved``."""
    best = script.want[name].tokens[step]
    runner_up = (best + 1) % 8
    script.free.change(name, step, token=runner_up)
    if lowered:
        script.free.move(name, step, -lowered, token=best)
    if moved:
        script.free.move(name, step, moved, token=runner_up)
    return runner_up


def test_a_token_within_the_noise_is_a_tie():
    script = Script(margins={2: 1e-6})
    token = other_token(script, "a", 2, moved=2e-6)
    (found,) = check_free(script.play())
    assert (found.verdict, found.request_id, found.step, found.row) == (Verdict.TIE, "a", 2, 0)
    assert found.got == f"token {token}"
    assert found.expected == f"token {script.want['a'].tokens[2]}"
    assert found.margin == pytest.approx(1e-6, abs=5e-7)
    assert found.noise == pytest.approx(NOISE)


def sampled(**filters):
    return Sampler("library", {"temp": 0.7, **filters})


@pytest.mark.parametrize(
    ("margin", "sampler", "moved", "verdict"),
    [
        # The margin may be the noise of both tokens.
        (1.9 * FACTOR * NOISE, None, 0.96 * FACTOR * NOISE, Verdict.TIE),
        (2.2 * FACTOR * NOISE, None, 0.96 * FACTOR * NOISE, Verdict.DIVERGED),
        # But the token must be the likeliest that the engine itself reports.
        (1e-6, None, 0.0, Verdict.DIVERGED),
        # Of two that are equal in both, to the bit, both take the same.
        (0.0, None, 0.0, Verdict.DIVERGED),
        # A sampled token depends on sums inside the sampler, so the margin decides nothing.
        (1.0, sampled(), NOISE, Verdict.TIE),
        (1e-6, sampled(), 0.0, Verdict.DIVERGED),
        # But it may not be one that the filters forbid.
        (1e-6, sampled(top_k=1), NOISE, Verdict.TIE),
        (1.0, sampled(top_k=1), NOISE, Verdict.DIVERGED),
        # Of two equal numbers a sort may put either first.
        (0.0, sampled(top_p=0.01), 0.0, Verdict.TIE),
        (1e-6, sampled(top_p=0.01), 0.0, Verdict.DIVERGED),
    ],
)
def test_another_token_is_a_tie_or_a_divergence(margin, sampler, moved, verdict):
    script = Script(margins={1: margin}, sampler=sampler)
    other_token(script, "a", 1, moved=moved, lowered=0.0 if sampler else moved)
    assert [f.verdict for f in check_free(script.play())] == [verdict]


def test_near_tokens_do_not_excuse_numbers_beyond_the_noise():
    script = Script(margins={2: 1e-6})
    other_token(script, "a", 2)
    script.free.move("a", 1, 0.01, token=0)
    assert [f.verdict for f in check_free(script.play())] == [Verdict.DIVERGED]


def test_only_the_first_other_token_of_a_free_run_is_reported():
    """The third run is left to the check of stability, the forced one to others."""
    script = Script()
    script.forced.change("a", 1, token=7)
    other_token(script, "a", 1)
    other_token(script, "a", 3)
    script.third = script.repeat_forced()
    assert [(f.step, f.mode) for f in check_free(script.play())] == [(1, "free")]


@pytest.mark.parametrize(
    ("promised", "margin", "verdict"),
    [
        (True, 1e-6, Verdict.DIVERGED),
        (False, 1e-6, Verdict.TIE),
        (False, 1.0, Verdict.DIVERGED),
    ],
)
def test_without_any_number_the_margin_decides_if_none_is_promised(promised, margin, verdict):
    script = Script(margins={1: margin})
    other_token(script, "b", 1)
    for step in range(3):
        script.free.change("b", step, logprobs=None, token_logprob=None)
    (found,) = check_free(script.play(full_logprobs=promised))
    assert (found.verdict, found.difference) == (verdict, None)


def test_a_margin_is_held_against_the_usual_noise_though_few_runs_explain_the_numbers():
    few, usual = (
        Envelope(np.full(5, level), np.full(5, level), NOISE) for level in (3.5 * NOISE, 5 * NOISE)
    )
    script = Script(margins={2: 2 * FACTOR * 4 * NOISE})
    other_token(script, "a", 2, moved=3 * NOISE)
    for step in range(5):
        script.free.change("a", step, logprobs=None)
    play = script.play(
        wider=lambda *_: [lambda: dataclasses.replace(few, few=True)], envelope=lambda _: usual
    )
    (found,) = check_free(play)
    assert (found.verdict, found.noise) == (Verdict.TIE, pytest.approx(5 * NOISE))
    (found,) = check_free(script.play(wider=lambda *_: [lambda: few], envelope=lambda _: usual))
    assert (found.verdict, found.noise) == (Verdict.DIVERGED, pytest.approx(3.5 * NOISE))


def test_a_tie_of_two_tokens_excuses_no_third():
    script = Script(margins={2: 1e-6})
    script.free.change("a", 2, token=(script.want["a"].tokens[2] + 2) % 8)
    (found,) = check_free(script.play())
    assert found.verdict is Verdict.DIVERGED
    assert found.margin == pytest.approx(1e-6, abs=5e-7)


def test_a_token_with_a_margin_is_a_divergence():
    script = Script()
    other_token(script, "b", 1, moved=1.5)
    (found,) = check_free(script.play())
    assert (found.verdict, found.request_id, found.step) == (Verdict.DIVERGED, "b", 1)
    assert found.margin == pytest.approx(1.0, rel=1e-3)
    assert found.difference == pytest.approx(1.5, rel=1e-3)


@pytest.mark.parametrize(("first_differs", "reported"), [(True, ["a"]), (False, ["b"])])
def test_a_row_that_goes_on_from_another_ones_tie_has_another_history(first_differs, reported):
    script = Script(margins={1: 1e-6})
    first, second, *others = script.schedule.requests
    second = msgspec.structs.replace(second, continues=Continuation("a", 2))
    script.schedule = Schedule("by_hand", (Arrival((first, second, *others)),))
    script.free.schedule = script.schedule
    if first_differs:
        other_token(script, "a", 1, moved=2e-6)
    other_token(script, "b", 0, moved=1.5)
    assert [f.request_id for f in check_free(script.play())] == reported
