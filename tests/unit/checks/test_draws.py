"""Bets against draws: won only where they are wrong."""

import dataclasses
import itertools
import math

import msgspec
import numpy as np
import pytest
from miniatures.plays import Script

from conformance.checks import draws
from conformance.checks.draws import Draw, check_draws, coupled, depend, drawn, fits
from conformance.checks.sampled import drawable
from conformance.core.numerics import flat_envelope
from conformance.core.schedule import Schedule
from conformance.core.token_choice import RANDOM, Sampler
from conformance.core.trace import Failure, Mode, Step, StepOutput, Stream, TokenEvent, Trace
from conformance.scenarios.build import together

ROWS, STEPS, VOCAB = 24, 12, 20


def play(choose=None, *, temp=1.0, at_once=False, **filters):
    """A run whose rows draw by tables of their own, or as ``choose`` does in place of a row."""
    rng = np.random.default_rng(3)
    names = [f"r{row}" for row in range(ROWS)]
    script = Script().play()
    request = script.schedule.requests[0]
    sampler = Sampler(RANDOM, {"temp": temp} | filters)
    requests = [
        msgspec.structs.replace(request, request_id=name, sampler=sampler, max_tokens=STEPS)
        for name in names
    ]
    tables = np.log(rng.dirichlet(np.full(VOCAB, 0.7), (ROWS, STEPS))).astype(np.float32)
    noise = rng.gumbel(size=(ROWS, STEPS, VOCAB))
    left = [[drawable(sampler, own, 0) for own in row] for row in tables]
    tokens = np.argmax(np.where(left, tables, -np.inf) / temp + noise, axis=-1)
    if choose is not None:
        tokens = choose(tables, noise, tokens)
    events = [
        tuple(TokenEvent(name, int(tokens[row, step])) for row, name in enumerate(names))
        for step in range(STEPS)
    ]
    if at_once:
        events = [tuple(e for own in zip(*events, strict=True) for e in own)]
    steps = tuple(Step(i, {}, StepOutput(these)) for i, these in enumerate(events))
    schedule = Schedule("drawn", (together(*requests),))
    want = {
        name: Stream(tuple(tokens[row].tolist()), tables[row]) for row, name in enumerate(names)
    }
    trace = Trace(schedule, Mode.FREE, steps)
    exact = {name: lambda _: flat_envelope(STEPS, 0.0) for name in ("floor", "envelope")}
    return dataclasses.replace(script, schedule=schedule, traces=(trace,), want=want, **exact)


def test_draws_whose_filters_the_noise_decides_prove_nothing():
    made = play(**FILTERS)
    noisy = {name: lambda _: flat_envelope(STEPS, 0.3) for name in ("floor", "envelope")}
    noisy = dataclasses.replace(made, **noisy)
    assert check_draws(noisy) == []
    unsure = [draw.sure for moment in drawn(noisy, noisy.traces[0])[0] for draw in moment]
    assert not all(unsure)
    sure = [draw.sure for moment in drawn(made, made.traces[0])[0] for draw in moment]
    assert all(sure)


def failed_tests(choose, **more):
    return [finding.what.partition(":")[0] for finding in check_draws(play(choose, **more))]


FILTERS = {"top_p": 0.9, "min_p": 0.2, "top_k": 4}


@pytest.mark.parametrize("more", [{}, {"temp": 2.0}, {"at_once": True}, FILTERS])
def test_right_draws_are_right(more):
    assert failed_tests(None, **more) == []


def greedy(tables, noise, tokens):
    return tables.argmax(-1)


def twice_as_warm(tables, noise, tokens):
    return np.argmax(tables / 2 + noise, axis=-1)


def one_noise(tables, noise, tokens):
    return np.argmax(tables + noise[:1], axis=-1)


def noise_of_the_row_before(tables, noise, tokens):
    return np.argmax(tables + np.repeat(noise[::2], 2, axis=0), axis=-1)


def copies(tables, noise, tokens):
    return np.where((np.arange(ROWS) % 4 == 3)[:, None], np.roll(tokens, 3, axis=0), tokens)


def noise_of_the_step_before(tables, noise, tokens):
    return np.argmax(tables + np.repeat(noise[:, ::2], 2, axis=1), axis=-1)


def looked_up(tables, numbers):
    """Tokens at these numbers in the sums of their probabilities, as mlx draws them."""
    sums = np.cumsum(np.exp(tables.astype(np.float64)), axis=-1)
    return (sums < (numbers * sums[..., -1])[..., None]).sum(-1)


def number_of_five_steps_before(tables, noise, tokens):
    numbers = np.random.default_rng(5).uniform(size=(ROWS, 5))
    return looked_up(tables, np.tile(numbers, 3)[:, :STEPS])


def number_of_the_row_three_before(tables, noise, tokens):
    numbers = np.random.default_rng(5).uniform(size=(3, STEPS))
    return looked_up(tables, np.tile(numbers, (ROWS // 3, 1)))


def never_the_last(tables, noise, tokens):
    """A token that no row may draw."""
    tables[:, 0, 7] = -np.inf
    return np.where(np.arange(STEPS) == 0, 7, tokens)


FITS = "tokens are not drawn by the probabilities of their rows"
OF_ROWS = "rows do not draw independently of each other"
OF_STEPS = "rows do not draw independently of their earlier steps"


@pytest.mark.parametrize(
    ("choose", "what"),
    [
        (greedy, FITS),
        (twice_as_warm, FITS),
        (never_the_last, FITS),
        (one_noise, OF_ROWS),
        (noise_of_the_row_before, OF_ROWS),
        (copies, OF_ROWS),
        (noise_of_the_step_before, OF_STEPS),
        (number_of_five_steps_before, OF_STEPS),
        (number_of_the_row_three_before, OF_ROWS),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_each_defect_is_found_by_its_test(choose, what, at_once):
    assert what in failed_tests(choose, at_once=at_once)


def share_of_all_rows(tables, noise, tokens):
    left = tables >= tables.max((0, 2), keepdims=True) + np.log(FILTERS["min_p"])
    return np.argmax(np.where(left, tables, -np.inf) + noise, axis=-1)


def unfiltered(tables, noise, tokens):
    return np.argmax(tables + noise, axis=-1)


@pytest.mark.parametrize("choose", [share_of_all_rows, unfiltered])
def test_filters_are_those_of_the_row(choose):
    assert FITS in failed_tests(choose, **FILTERS)


def test_looked_up_numbers_of_their_own_are_right():
    def choose(tables, noise, tokens):
        return looked_up(tables, np.random.default_rng(5).uniform(size=(ROWS, STEPS)))

    assert failed_tests(choose) == []


def test_the_temperature_is_that_of_the_row():
    assert FITS in failed_tests(
        lambda tables, noise, _: np.argmax(tables + noise, axis=-1), temp=0.3
    )


def by(args):
    """A play whose rows draw from the tokens that these arguments leave, by the chain's rules."""

    def choose(tables, noise, _):
        scores = tables / args["temp"] + noise
        for own, row in zip(tables.reshape(-1, VOCAB), scores.reshape(-1, VOCAB), strict=True):
            row[~drawable(Sampler("library", args), own, 0.0)] = -np.inf
        return np.argmax(scores, axis=-1)

    return choose


def asked(args, choose):
    made = play(choose, temp=args["temp"])
    rows = [
        msgspec.structs.replace(request, sampler=Sampler(RANDOM, args))
        for request in made.schedule.requests
    ]
    schedule = Schedule("drawn", (together(*rows),))
    return check_draws(dataclasses.replace(made, schedule=schedule))


OPTIONS = [
    {"temp": 2.0, "top_k": 2},
    {"temp": 1.0, "top_p": 0.4},
    {"temp": 1.5, "min_p": 0.3},
    {"temp": 1.0, "xtc_probability": 1.0, "xtc_threshold": 0.05},
]


@pytest.mark.parametrize("args", OPTIONS)
def test_tokens_that_the_options_of_a_row_exclude_are_found(args):
    assert asked(args, by(args)) == []
    found = asked(args, by({"temp": args["temp"]}))
    assert {f.request_id for f in found if "excludes" in f.what} >= {"r0", "r1"}
    assert {f.what.partition(":")[0] for f in found} >= {FITS}


def test_the_only_tokens_that_are_left_are_drawn_by_their_probabilities():
    args = {"temp": 2.0, "top_k": 5}
    assert [f.what.partition(":")[0] for f in asked(args, by({"temp": 0.01, "top_k": 5}))] == [FITS]


def test_rows_that_are_seen_one_at_a_time_are_compared_by_the_number_of_a_token():
    for choose, wrong in ((None, False), (one_noise, True)):
        made = play(choose)
        trace = made.traces[0]
        alone = [event for step in trace.steps for event in step.output.events]
        steps = tuple(Step(i, {}, StepOutput((event,))) for i, event in enumerate(alone))
        made = dataclasses.replace(made, traces=(dataclasses.replace(trace, steps=steps),))
        assert any(OF_ROWS in finding.what for finding in check_draws(made)) is wrong


def test_rows_that_draw_nothing_and_runs_that_failed_are_left_out():
    assert check_draws(Script().play()) == []
    made = play(greedy)
    failed = dataclasses.replace(made.traces[0], failure=Failure("E", "", "", ""))
    assert check_draws(dataclasses.replace(made, traces=(failed,))) == []


def test_several_tokens_of_a_row_in_one_step_are_steps_of_their_own():
    apart, at_once = play(), play(at_once=True)
    first, again = (drawn(made, made.traces[0])[0] for made in (apart, at_once))
    of = [[(draw.row, draw.token) for draw in moment] for moment in first]
    assert of == [[(draw.row, draw.token) for draw in moment] for moment in again]


def draw(probs, token):
    return Draw("a", token, np.log(np.array(probs)), 0.5)


def test_the_expectation_of_a_bet_is_one():
    """Over all tokens that a right draw can give; so no history makes a false alarm likely."""
    p, q = np.random.default_rng(1).dirichlet(np.ones(6) * 0.5, 2)
    for token in range(6):
        found = sum(q[k] * coupled(draw(p, token), draw(q, k)) for k in range(6))
        assert found == pytest.approx(1.0, rel=1e-6)
    three = (p[:3] / p[:3].sum(), q[:3] / q[:3].sum(), p[3:] / p[3:].sum())
    total = 0.0
    for tokens in itertools.product(range(3), repeat=3):
        sequence = [draw(own, k) for own, k in zip(three, tokens, strict=True)]
        probability = math.prod(float(own[k]) for own, k in zip(three, tokens, strict=True))
        total += probability * 10 ** depend([sequence])
    assert total == pytest.approx(1.0, rel=1e-6)
    shares = (np.arange(1000) + 0.5) / 1000
    placed = [dataclasses.replace(draw(three[0], k), share=s) for k in range(3) for s in shares]
    found = [one.probability * 10 ** fits([one], [[one]]) for one in placed]
    assert sum(found) / len(shares) == pytest.approx(1.0, rel=1e-3)


def test_with_the_same_noise_a_token_is_as_likely_as_it_is_in_draws():
    p, q = np.random.default_rng(2).dirichlet(np.ones(4), 2)
    noise = np.random.default_rng(3).gumbel(size=(100_000, 4))
    one, other = (np.log(p) + noise).argmax(-1), (np.log(q) + noise).argmax(-1)
    for token in range(4):
        shares = np.bincount(other[one == token], minlength=4) / (one == token).sum()
        wanted = [q[k] * coupled(draw(p, token), draw(q, k)) for k in range(4)]
        assert np.abs(shares - wanted).max() < 0.02


def test_false_alarms_are_as_rare_as_they_should_be():
    assert 3 / draws.ALARM < 1e-6
