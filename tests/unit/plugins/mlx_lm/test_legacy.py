"""The generator of mlx-lm 0.31.1 looks like a later one, so that ``compat`` can read it."""

from types import SimpleNamespace

import mlx.core as mx
import pytest
from mlx_lm.models.cache import KVCache

from conformance.core.errors import Unsupported
from conformance.core.schedule import Stage
from conformance.plugins.mlx_lm import compat, legacy
from conformance.plugins.mlx_lm.legacy import accepted, uncached


class Old:
    """Prefills one queued prompt in each ``next()``, and decodes what it has."""

    def __init__(self, model, **options):
        self.model, self.options = model, options
        self.uid_count, self.prompt_cache_nbytes = 0, 0
        self.unprocessed_prompts, self.uids = [], []

    @property
    def active_batch(self):
        if not self.uids:
            return None
        lists = dict.fromkeys(("max_tokens", "samplers", "logits_processors", "num_tokens"), ())
        return SimpleNamespace(
            uids=self.uids, cache=["c"], extract_cache=lambda row: f"row {row}", **lists
        )

    def insert(self, prompts, max_tokens=None, **options):
        uids = list(range(self.uid_count, self.uid_count + len(prompts)))
        self.uid_count += len(prompts)
        entries = zip(uids, prompts, strict=True)
        self.unprocessed_prompts += [(uid, prompt, 9, "prefix") for uid, prompt in entries]
        return uids

    def next(self):
        if self.unprocessed_prompts:
            self.uids = [*self.uids, self.unprocessed_prompts.pop(0)[0]]
        row = {"logprobs": None, "finish_reason": None, "prompt_cache": None}
        return [SimpleNamespace(uid=uid, token=100 + uid, **row) for uid in self.uids]

    def remove(self, uids):
        self.uids = [uid for uid in self.uids if uid not in uids]


@pytest.fixture
def generator(monkeypatch):
    monkeypatch.setattr(legacy, "BatchGenerator", Old)
    return legacy.WholePromptGenerator("model", prefill_step_size=3)


def test_a_request_goes_from_the_queue_to_decode(generator):
    first, second = generator.insert([[1, 2, 3], [4]])
    assert compat.uids_by_stage(generator) == dict.fromkeys((first, second), Stage.QUEUED)
    prompts, responses = generator.next()
    assert compat.uids_by_stage(generator) == {first: Stage.DECODE, second: Stage.QUEUED}
    assert [(p.uid, p.progress, p.end_of_prompt) for p in prompts] == [(first, (3, 3), True)]
    assert [(r.uid, r.all_tokens) for r in responses] == [(first, [1, 2, 3, 100])]
    assert compat.decode_rows(generator) == [first]
    assert compat.decode_caches(generator) == ["c"]


def test_tokens_before_the_prompt_are_part_of_the_row(generator):
    (uid,) = generator.insert([[3]], all_tokens=[[1, 2]])
    _, (response,) = generator.next()
    assert response.all_tokens == [1, 2, 3, 100]
    assert generator.extract_cache([uid]) == {uid: ("row 0", [1, 2, 3, 100])}


def test_a_queued_request_has_the_cache_that_it_came_with(generator):
    (uid,) = generator.insert([[1]])
    assert generator.extract_cache([uid]) == {uid: ("prefix", [])}


def test_caches_before_the_last_token_are_those_of_each_prompt(monkeypatch):
    class Keeps(Old):
        def __init__(self, model, *, prompt_checkpoint_callback=None):
            super().__init__(model)
            self.keep = prompt_checkpoint_callback

        def next(self):
            rows = [(uid, 1, iter([f"a {uid}", f"b {uid}"])) for uid in (0, 1)]
            self.keep(rows)
            return super().next()

    monkeypatch.setattr(legacy, "BatchGenerator", Keeps)
    generator = legacy.WholePromptGenerator("model")
    generator.insert([[1, 2, 3], [4, 5]])
    generator.next()
    kept = [([1, 2], ["a 0", "b 0"]), ([4], ["a 1", "b 1"])]
    assert compat.checkpoints(generator) == kept
    assert compat.checkpoints(generator) == []


def test_prompts_in_pieces_are_not_supported(generator):
    assert generator.insert_segments([[[1, 2]], []]) == [0, 1]
    with pytest.raises(Unsupported, match="does not support prompts in pieces"):
        generator.insert_segments([[[1], [2]]])


def test_the_digest_sees_a_removed_row(generator):
    (uid,) = generator.insert([[1, 2]])
    generator.next()
    before = compat.digest(generator)
    generator.remove([uid])
    assert compat.digest(generator)["decode batch"] != before["decode batch"]


class Oldest:
    """As in 0.28.0: no caches, no removal, no ``close``, no samplers of a request's own."""

    def __init__(self, model, max_tokens=128, sampler=None, prefill_step_size=2048):
        self.unprocessed_prompts, self.active_batch = [], None
        self.uid_count = 0

    def insert(self, prompts, max_tokens=None):
        self.unprocessed_prompts = [(uid, p, 9) for uid, p in enumerate(prompts)]
        return [entry[0] for entry in self.unprocessed_prompts]


@pytest.fixture
def oldest(monkeypatch):
    monkeypatch.setattr(legacy, "BatchGenerator", Oldest)
    return legacy.WholePromptGenerator("model", max_kv_size=None)


def test_the_oldest_does_what_it_can(oldest):
    (uid,) = oldest.insert([[1, 2]], caches=None)
    assert compat.uids_by_stage(oldest) == {uid: Stage.QUEUED}
    assert compat.live_caches(oldest) == []
    assert compat.cache_bytes(oldest) == 0
    oldest.close()


def test_the_oldest_refuses_the_rest_in_words(oldest):
    with pytest.raises(Unsupported, match="does not support samplers"):
        oldest.insert([[1, 2]], samplers=[min])
    with pytest.raises(Unsupported, match="does not support removing"):
        oldest.remove([0])
    with pytest.raises(Unsupported, match="does not support max_kv_size"):
        legacy.WholePromptGenerator("model", max_kv_size=8)


def takes_two(model, size=1):
    """Of an old release."""


def test_what_is_none_is_left_out_where_it_is_unknown():
    assert accepted(takes_two, {"size": None, "max_kv_size": None}) == {"size": None}


def test_what_is_given_and_unknown_is_refused_by_name():
    with pytest.raises(Unsupported, match="takes_two does not support samplers"):
        accepted(takes_two, {"size": 2, "samplers": [None]})


def test_a_function_that_takes_any_gets_all():
    assert accepted(lambda **_: None, {"samplers": 1}) == {"samplers": 1}


INPUTS = mx.array([[1, 2]])


class Model:
    """Gives whether it was called with a cache; ``needs`` one or not."""

    layers = (0,)

    def __init__(self, *, needs):
        self.needs = needs

    def __call__(self, inputs, cache=None):
        if self.needs and cache is None:
            raise UnboundLocalError("state")
        return inputs, cache


def test_a_model_is_called_without_a_cache():
    assert uncached(Model(needs=False), INPUTS) == (INPUTS, None)


def test_a_model_that_needs_a_cache_gets_a_fresh_one():
    _, (cache,) = uncached(Model(needs=True), INPUTS)
    assert isinstance(cache, KVCache)
    assert cache.empty()
