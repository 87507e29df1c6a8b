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


def other_token(script, name, step, *, moved=0.0):
    """Let the free run choose the runner-up at a step, its logprob moved by ``moved``."""
    runner_up = (script.want[name].tokens[step] + 1) % 8
    script.free.change(name, step, token=runner_up)
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


@pytest.mark.parametrize(
    ("margin", "verdict"),
    [(1.9 * FACTOR * NOISE, Verdict.TIE), (2.2 * FACTOR * NOISE, Verdict.DIVERGED)],
)
def test_the_margin_may_be_the_noise_of_both_tokens(margin, verdict):
    script = Script(margins={1: margin})
    other_token(script, "b", 1)
    assert [f.verdict for f in check_free(script.play())] == [verdict]


def test_a_margin_is_held_against_the_usual_noise_though_few_runs_explain_the_numbers():
    few, usual = (
        Envelope(np.full(5, level), np.full(5, level), NOISE) for level in (3.5 * NOISE, 5 * NOISE)
    )
    script = Script(margins={2: 2 * FACTOR * 4 * NOISE})
    other_token(script, "a", 2, moved=3 * NOISE)
    play = script.play(
        wider=lambda _: [lambda: dataclasses.replace(few, few=True)], envelope=lambda _: usual
    )
    (found,) = check_free(play)
    assert (found.verdict, found.noise) == (Verdict.TIE, pytest.approx(5 * NOISE))
    (found,) = check_free(script.play(wider=lambda _: [lambda: few], envelope=lambda _: usual))
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


def test_near_tokens_do_not_excuse_numbers_beyond_the_noise():
    script = Script(margins={2: 1e-6})
    other_token(script, "a", 2)
    script.free.move("a", 1, 0.01, token=0)
    assert [f.verdict for f in check_free(script.play())] == [Verdict.DIVERGED]


def test_only_the_first_other_token_of_a_request_is_reported():
    script = Script()
    other_token(script, "a", 1)
    other_token(script, "a", 3)
    assert [f.step for f in check_free(script.play())] == [1]


def test_a_sampled_token_may_differ_where_a_number_moved():
    """A sampled token depends on sums inside the sampler, so the margin decides nothing."""
    script = Script(sampler=Sampler("library", {"temp": 1.0}))
    other_token(script, "a", 1, moved=NOISE)
    assert [f.verdict for f in check_free(script.play())] == [Verdict.TIE]


def test_a_sampled_token_may_not_differ_on_equal_numbers():
    script = Script(sampler=Sampler("library", {"temp": 1.0}), margins={1: 1e-6})
    other_token(script, "a", 1)
    assert [f.verdict for f in check_free(script.play())] == [Verdict.DIVERGED]


@pytest.mark.parametrize(("margin", "verdict"), [(1e-6, Verdict.TIE), (1.0, Verdict.DIVERGED)])
def test_a_sampled_token_that_filters_forbid_is_a_divergence_though_a_number_moved(margin, verdict):
    script = Script(margins={1: margin}, sampler=Sampler("library", {"temp": 0.7, "top_k": 1}))
    other_token(script, "a", 1, moved=NOISE)
    assert [f.verdict for f in check_free(script.play())] == [verdict]


def test_a_forced_run_is_not_looked_at():
    script = Script()
    script.forced.change("a", 1, token=7)
    assert check_free(script.play()) == []


def test_without_any_number_another_token_is_a_divergence():
    script = Script(margins={1: 1e-6})
    other_token(script, "b", 1)
    for step in range(3):
        script.free.change("b", step, logprobs=None, token_logprob=None)
    (found,) = check_free(script.play())
    assert found.verdict is Verdict.DIVERGED
    assert found.difference is None


@pytest.mark.parametrize(("margin", "verdict"), [(1e-6, Verdict.TIE), (1.0, Verdict.DIVERGED)])
def test_where_no_number_is_promised_the_margin_decides(margin, verdict):
    script = Script(margins={1: margin})
    other_token(script, "b", 1)
    for step in range(3):
        script.free.change("b", step, logprobs=None, token_logprob=None)
    (found,) = check_free(script.play(full_logprobs=False))
    assert found.verdict is verdict


def test_the_third_run_is_left_to_the_check_of_stability():
    script = Script()
    script.free, script.third = script.repeat_forced(), script.free
    script.third.change("a", 1, token=7)
    assert check_free(script.play()) == []


@pytest.mark.parametrize(("margin", "verdict"), [(0.0, Verdict.TIE), (1e-6, Verdict.DIVERGED)])
def test_of_two_equal_numbers_a_sort_may_put_either_first(margin, verdict):
    script = Script(margins={1: margin}, sampler=Sampler("library", {"temp": 0.7, "top_p": 0.01}))
    script.free.change("a", 1, token=(script.want["a"].tokens[1] + 1) % 8)
    assert [finding.verdict for finding in check_free(script.play())] == [verdict]


@pytest.mark.parametrize(("first_differs", "reported"), [(True, ["a"]), (False, ["b"])])
def test_a_row_that_goes_on_from_another_ones_tie_has_another_history(first_differs, reported):
    script = Script(margins={1: 1e-6})
    first, second, *others = script.schedule.requests
    second = msgspec.structs.replace(second, continues=Continuation("a", 2))
    script.schedule = Schedule("by_hand", (Arrival((first, second, *others)),))
    script.free.schedule = script.schedule
    if first_differs:
        other_token(script, "a", 1)
    other_token(script, "b", 0, moved=1.5)
    assert [f.request_id for f in check_free(script.play())] == reported
