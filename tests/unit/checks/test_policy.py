"""A batch of one against what the library's own single stream makes of the same options."""

import numpy as np
import pytest
from miniatures.library import ToyLibrary, subject
from miniatures.plays import NOISE, stream
from miniatures.right import ContinuousBatching

from conformance.checks import Play
from conformance.checks.policy import Shares, cache_shares, check_policy
from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.numerics import flat_envelope
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.trace import (
    CachedLayer,
    Failure,
    FinishReason,
    Mode,
    Step,
    StepOutput,
    TokenEvent,
    Trace,
)
from conformance.core.verdict import Verdict
from conformance.run.judging.playing import play_schedule

STEPS = 4
ALONE = Schedule(
    "alone", (Arrival((Request("a", (1, 2, 3), STEPS),)),), options=EngineOptions(kv=KvQuant(8))
)
WANT = stream(0, STEPS)


def played(policy, *, logprobs=True, failure=None, asked=None):
    """A batch of one that gives the oracle's stream, with the library's own single stream."""
    events = [
        TokenEvent("a", token, row if logprobs else None, 0.0, None)
        for token, row in zip(WANT.tokens, WANT.logprobs, strict=True)
    ]
    steps = tuple(Step(i, {}, StepOutput((event,))) for i, event in enumerate(events))

    def noise(name):
        if asked is not None:
            asked.append(name)
        return flat_envelope(STEPS, NOISE)

    return Play(
        ALONE,
        (Trace(ALONE, Mode.FORCED, steps, failure),),
        {"a": WANT},
        floor=lambda _: flat_envelope(STEPS, NOISE),
        envelope=noise,
        wider=lambda name, _: [lambda: noise(name)] * 2,
        policy=policy,
    )


def off(nats, step):
    moved = WANT.logprobs.copy()
    moved[step] += np.float32(nats)
    return moved


def test_equal_policies_have_no_finding():
    asked = []
    assert check_policy(played(WANT.logprobs, asked=asked)) == []
    assert asked == []


def test_one_policy_alone_has_no_finding():
    assert check_policy(played(None)) == []


def test_another_policy_is_reported_with_its_first_step():
    (found,) = check_policy(played(off(0.25, 2)))
    assert (found.verdict, found.check, found.step) == (Verdict.POLICY, "policy", 2)
    assert found.difference == pytest.approx(0.25)
    assert found.schedule == "alone"
    assert "0.25 nats apart at output token 2" in found.what


def test_what_noise_explains_is_none():
    asked = []
    assert check_policy(played(off(1.5 * NOISE, 1), asked=asked)) == []
    (found,) = check_policy(played(off(100 * NOISE, 1), asked=asked))
    assert found.step == 1
    assert asked == ["a", "a"]


def test_a_refusal_of_the_single_stream_is_another_policy():
    failure = Failure("NotImplementedError", "NYI", "cache.py:796", "decoding", unsupported=True)
    (found,) = check_policy(played(failure))
    assert (found.verdict, found.step) == (Verdict.POLICY, None)
    assert found.got == "NotImplementedError: NYI"


def test_a_batch_that_failed_or_shows_no_logprobs_is_not_compared():
    failure = Failure("ValueError", "no", "x.py:1", "step 0")
    assert check_policy(played(off(1, 0), failure=failure)) == []
    assert check_policy(played(off(1, 0), logprobs=False)) == []


class TwoPolicies(ToyLibrary):
    """With quantization, its single stream is half a nat off."""

    def policy_stream(self, model, request, tokens, *, options):
        logprobs = self.single_stream(
            model, request, options=options, steps=len(tokens), forced=tokens
        ).stream.logprobs
        return logprobs + np.float32(0.5) * (np.arange(logprobs.shape[-1]) == tokens[0])


class Raises(ToyLibrary):
    """With quantization, its single stream raises."""

    def policy_stream(self, model, request, tokens, *, options):
        raise NotImplementedError("NYI")


@pytest.mark.parametrize("library", [TwoPolicies, Raises])
def test_a_quantized_batch_of_one_is_compared(library):
    toy = subject(library())
    (found,) = check_policy(play_schedule(toy, ContinuousBatching, ALONE))
    assert found.verdict is Verdict.POLICY


@pytest.mark.parametrize("options", [EngineOptions(), EngineOptions(kv=KvQuant(8))])
def test_nothing_else_is(options):
    toy = subject(TwoPolicies())
    requests = [Request("a", (1, 2, 3), 2), Request("b", (4, 5), 2)]
    count = 1 if options.kv is None else 2
    schedule = Schedule("s", (Arrival(tuple(requests[:count])),), options=options)
    played_ = play_schedule(toy, ContinuousBatching, schedule)
    assert played_.policy is None
    assert played_.traces[0].stream("a").finish_reason is FinishReason.LENGTH


SCHEDULE = Schedule("s", (Arrival((Request("a", (1,), 1),)),))


def run(*steps):
    """A run whose layers hold so many bytes after each step; with a q they are quantized."""
    return Trace(
        SCHEDULE,
        Mode.FORCED,
        tuple(
            Step(index, {}, StepOutput(), layers=tuple(map(layer, text.split())))
            for index, text in enumerate(steps)
        ),
    )


def layer(text):
    return CachedLayer(int(text.rstrip("q")), text.endswith("q"))


def test_the_share_of_all_layers_and_of_the_quantized_ones():
    found = cache_shares(run("25q 25q 100"), run("100 100 100"))
    assert found == Shares(0.5, 0.25)


def test_the_fullest_step_counts():
    found = cache_shares(run("9q 9", "20q 100", "9q 9"), run("10 10", "100 100", "20 20"))
    assert found == Shares(0.6, 0.2)


@pytest.mark.parametrize(
    ("trace", "plain"),
    [
        (run(""), run("")),
        (run("10 10"), run("10 10")),
        (run("5q"), run("10 10")),
        (run("0q 10"), run("0 10")),
        (run(), run("10")),
    ],
)
def test_without_quantized_layers_there_is_no_share(trace, plain):
    assert cache_shares(trace, plain) is None
