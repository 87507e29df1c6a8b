"""Each breach of the engine protocol is reported by the method that commits it."""

from dataclasses import replace

import numpy as np
import pytest
from miniatures.model import VOCAB, ToyModel
from miniatures.right import AllAtOnce, ContinuousBatching

from conformance.core.engine import Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.schedule import Request, Stage
from conformance.core.trace import StepOutput, TokenEvent
from conformance.tools.smoke.contract import Broken, Wrong, keep_contract

REQUESTS = (Request("a", (3, 4, 5), 3), Request("b", (6,), 4))


def want():
    """The tokens of each request alone, by an engine that is right."""
    found = {}
    for request in REQUESTS:
        engine, tokens = ContinuousBatching(ToyModel(), EngineOptions()), []
        engine.insert([Submission(request)])
        while len(tokens) < request.max_tokens:
            tokens += [event.token for event in engine.step().events]
        found[request.request_id] = tuple(tokens)
    return found


def keep(kind):
    keep_contract(kind, ToyModel(), REQUESTS, want(), VOCAB)


@pytest.mark.parametrize("kind", [ContinuousBatching, AllAtOnce])
def test_a_right_adapter_keeps_it(kind):
    keep(kind)


def with_events(change):
    """An adapter whose events are changed one by one."""

    class Changed(ContinuousBatching):
        def step(self):
            output = super().step()
            return replace(output, events=tuple(change(event) for event in output.events))

    return Changed


class Strange(ContinuousBatching):
    def stages(self):
        return {**super().stages(), "ghost": Stage.QUEUED}


class NamesStagesInText(ContinuousBatching):
    def stages(self):
        return dict.fromkeys(super().stages(), "decode")


class NamesStrangeRows(ContinuousBatching):
    def rows(self):
        return {"ghost": 0}


class CountsBytesInHalves(ContinuousBatching):
    def cache_bytes(self):
        return 0.5


class WorksOnStrangers(ContinuousBatching):
    def step(self):
        return replace(super().step(), processed={"ghost": 1})


class NeverBegins(ContinuousBatching):
    def step(self):
        return StepOutput()


class GivesAList(ContinuousBatching):
    def step(self):
        return list(super().step().events)


class GivesTuples(ContinuousBatching):
    def step(self):
        return StepOutput(tuple((e.request_id, e.token) for e in super().step().events))


class YieldsOn(ContinuousBatching):
    def step(self):
        output = super().step()
        even = np.full(VOCAB, -np.log(VOCAB), np.float32)
        over = tuple(TokenEvent(name, 1, even) for name in self.done)
        return output if output.events else replace(output, events=over)


class NeverEnds(ContinuousBatching):
    def reason(self, row):
        return None


class GoesOnAfterRemoval(ContinuousBatching):
    def remove(self, request_ids):
        pass


class Forgets(ContinuousBatching):
    def leave(self, ended):
        super().leave(ended)
        self.gone = [row.name for row in ended]

    def stages(self):
        return super().stages() | dict.fromkeys(getattr(self, "gone", ()), Stage.DECODE)


class ChoosesItself(ContinuousBatching):
    def row(self, submission):
        return super().row(replace(submission, forced=None))

    def logprobs(self, row, scores):
        return np.roll(super().logprobs(row, scores), 1)


class Stumbles(ContinuousBatching):
    def insert(self, submissions):
        raise KeyError("uid")


class HasARowsList(ContinuousBatching):
    def __init__(self, model, options):
        super().__init__(model, options)
        self.rows = []


class ClosesBadly(ContinuousBatching):
    def close(self):
        raise AttributeError("no generator")


BROKEN = {
    with_events(lambda e: replace(e, request_id="ghost")): "a token of 'ghost', which was not",
    with_events(lambda e: replace(e, token=np.int64(e.token))): "as a token of",
    with_events(lambda e: replace(e, token=VOCAB)): f"must give an int below {VOCAB}",
    with_events(lambda e: replace(e, logprobs=None)): "as nothing, must give a NumPy array",
    with_events(lambda e: replace(e, logprobs=e.logprobs.astype(np.float64))): "as float64, must",
    with_events(lambda e: replace(e, logprobs=e.logprobs[None])): f"of shape [1, {VOCAB}]",
    with_events(lambda e: replace(e, logprobs=e.logprobs + 3)): "logits, not normalised",
    with_events(
        lambda e: replace(e, finish_reason=e.finish_reason and "eos")
    ): "finish reason 'eos'",
    Strange: "stages() names 'ghost'",
    NamesStagesInText: "stages() gave a str",
    NamesStrangeRows: "rows() names 'ghost'",
    CountsBytesInHalves: "cache_bytes() gave 0.5",
    WorksOnStrangers: "on the prompt of 'ghost'",
    NeverBegins: "gave nothing 8 times in a row while a, b waits",
    GivesAList: "gave a list, must give a StepOutput",
    GivesTuples: "gave a tuple among its events",
    YieldsOn: "after it had finished",
    NeverEnds: "no finish reason with the last",
    GoesOnAfterRemoval: "after it was removed",
    Forgets: "stages() still names",
    ChoosesItself: "gave back",
    Stumbles: "insert() raised KeyError: 'uid'",
    HasARowsList: "HasARowsList.rows hides the method rows() of Engine",
    ClosesBadly: "close() raised AttributeError: no generator",
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: BROKEN[kind])
def test_a_breach_is_reported(kind):
    with pytest.raises(Broken) as raised:
        keep(kind)
    assert BROKEN[kind] in str(raised.value)


def test_what_lies_below_the_adapter_is_not_its_fault():
    class Elsewhere(ContinuousBatching):
        def step(self):
            return np.linalg.inv(np.zeros((2, 2)))

    with pytest.raises(Wrong, match="step\\(\\) raised LinAlgError"):
        keep(Elsewhere)


def test_a_refusal_of_the_library_is_neither():
    class Refuses(ContinuousBatching):
        def step(self):
            raise NotImplementedError("this model is not supported in batches")

    with pytest.raises(Unsupported, match="not supported in batches"):
        keep(Refuses)
