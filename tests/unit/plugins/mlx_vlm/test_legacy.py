"""The generator of mlx-vlm 0.4 looks like a later one, so that ``compat`` can read it."""

import importlib
from types import SimpleNamespace

import mlx.core as mx
import pytest

from conformance.core.errors import Unsupported
from conformance.core.schedule import Stage
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.legacy import WholePromptGenerator

VOCAB = 4


class Batch(SimpleNamespace):
    def __len__(self):
        return len(self.uids)


class Old:
    """Prefills all that was inserted in the next ``next()``; samples for it, then to decode."""

    def __init__(self, model, processor, *, sampler, **sizes):
        self.sampler, self.new, self.uids, self.embedded = sampler, [], [], []
        vars(self).update(sizes)

    @property
    def active_batch(self):
        lists = {"cache": ["c"], "max_tokens": [], "num_tokens": []}
        return Batch(uids=self.uids, **lists) if self.uids else None

    def insert(self, prompts, max_tokens):
        self.new = list(range(10, 10 + len(prompts)))
        return self.new

    def next(self, **embedded):
        self.embedded.append(embedded)
        for uids in (self.new, self.uids):
            if uids:
                tokens = self.sampler(mx.zeros((len(uids), VOCAB)))
        self.uids, self.new = self.uids + self.new, []
        row = {"logprobs": mx.arange(VOCAB), "finish_reason": None}
        return [SimpleNamespace(uid=uid, token=tokens[0], **row) for uid in self.uids]


@pytest.fixture
def stages():
    """What ``compat`` reads within each call of the sampler."""
    return []


@pytest.fixture
def generator(monkeypatch, stages):
    monkeypatch.setattr(
        importlib.import_module("mlx_vlm.generate"), "BatchGenerator", Old, raising=False
    )

    def sampler(logprobs):
        stages.append(compat.prefill_rows(made))
        return mx.full((len(logprobs),), 2, mx.uint32)

    made = WholePromptGenerator(
        None,
        None,
        completion_batch_size=2,
        prefill_batch_size=2,
        prefill_step_size=8,
        top_logprobs_k=VOCAB,
        embed=lambda many: {"inputs": list(many)},
        sampler=sampler,
    )
    return made


def insert(generator, *lengths):
    return [
        generator.insert([[1] * length], max_tokens=4, prompt_kwargs=[{"inputs": length}])[0]
        for length in lengths
    ]


def test_prompts_are_embedded_together_when_they_are_prefilled(generator):
    long, short, late = insert(generator, 3, 1, 5)
    assert set(compat.uids_by_stage(generator).values()) == {Stage.QUEUED}
    _, responses = generator.next()
    assert generator._inner.embedded == [{"inputs": [1, 3]}]
    assert [response.uid for response in responses] == [short, long]
    assert compat.uids_by_stage(generator) == {
        short: Stage.DECODE,
        long: Stage.DECODE,
        late: Stage.QUEUED,
    }


def test_the_first_sampled_rows_are_those_of_the_prefill(generator, stages):
    long, short = insert(generator, 3, 1)
    generator.next()
    generator.next()
    assert stages == [[short, long], []]


def test_all_logprobs_are_returned(generator):
    insert(generator, 2)
    _, (response,) = generator.next()
    assert response.top_logprobs == [(0, 0.0), (1, 1.0), (2, 2.0), (3, 3.0)]
    assert response.token_logprob == 2.0


def test_what_it_cannot_do_is_not_supported(generator):
    with pytest.raises(Unsupported, match="does not support logits_processors"):
        generator.insert([[1]], 4, [{"inputs": 1}], logits_processors=[None])
    with pytest.raises(Unsupported, match="does not support removing 0"):
        generator.remove(0)
