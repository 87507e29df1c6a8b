"""Properties of mlx-lm's own functions: what is known of them, and that they detect a defect."""

import importlib

import pytest
from mlx_lm.models import cache

from conformance.power.properties.mlx_lm import properties

# The package has a function of that name.
generate = importlib.import_module("mlx_lm.generate")
GENERATOR = {one.name: one for one in properties() if one.name.startswith(("generator", "batches"))}
STEPS = {one.name: one for one in properties() if one.name.startswith("steps")}
KEPT = {one.name: one for one in properties() if one.name.startswith(("kept", "caches"))}


def test_a_prefix_of_one_token_is_not_found():
    assert "those of 0 are found" in KEPT["kept: a prefix of one token"].problem()


def test_caches_hold_what_they_must():
    wrong = {name for name, one in KEPT.items() if one.problem()}
    assert wrong == {"kept: a prefix of one token"}


def none_at_all(self, *args, **kwargs):
    """A mask that masks nothing."""


def all_at_once(self, keys, values):
    self.keys, self.values = keys, values
    self.offset += keys.shape[2]
    return keys, values


# For each property of caches what is broken, where, and by what.
FORGETFUL = {
    "kept: ten by default": (cache.LRUPromptCache, "__len__", lambda self: 11),
    "kept: to the last byte": (cache.LRUPromptCache, "trim_to", none_at_all),
    "caches: prepared": (cache.BatchRotatingKVCache, "prepare", none_at_all),
    "kept: what the tree finds": (cache.PromptTrie, "pop_prefixes", lambda *_: []),
    "caches: those of a model": (cache, "KVCache", lambda: cache.RotatingKVCache(8)),
    "caches: the first tokens": (cache.RotatingKVCache, "update_and_fetch", all_at_once),
    "caches: room": (cache.BatchKVCache, "step", 255),
    "caches: padding of states": (cache.ArraysCache, "make_mask", none_at_all),
    "caches: what is refused": (cache.BatchKVCache, "prepare", none_at_all),
}


@pytest.mark.parametrize("name", FORGETFUL)
def test_a_broken_cache_is_detected(monkeypatch, name):
    monkeypatch.setattr(*FORGETFUL[name])
    assert KEPT[name].problem() != ""


@pytest.mark.parametrize("name", GENERATOR)
def test_the_generator_gives_each_row_its_answer(name):
    assert GENERATOR[name].problem() == ""


def reversed_rows(logprobs):
    return generate.mx.argmax(logprobs, axis=-1)[::-1]


def never(*args, **kwargs):
    """Gives nothing, whatever it is asked."""


# For each property what is broken, and by what.
BROKEN = {
    "batches: answers": ("greedy_sampler", reversed_rows),
    "generator: rows and steps": ("greedy_sampler", reversed_rows),
    "generator: rows removed": ("greedy_sampler", reversed_rows),
    "generator: what is refused": ("_normalize_samplers", lambda samplers, **_: samplers or [None]),
}


@pytest.mark.parametrize("name", GENERATOR)
def test_a_broken_generator_is_detected(monkeypatch, name):
    attribute, broken = BROKEN[name]
    monkeypatch.setattr(generate, attribute, broken)
    assert GENERATOR[name].problem() != ""


def test_a_row_that_is_not_removed_is_detected(monkeypatch):
    monkeypatch.setattr(generate.GenerationBatch, "filter", never)
    assert GENERATOR["generator: rows removed"].problem() != ""


def one_at_a_time(self):
    """As ``next``, with steps that are not counted."""
    self._counters.generation_steps -= 1
    return RIGHT_NEXT(self)


RIGHT_NEXT = generate.BatchGenerator._next

# For each property of steps what is broken, where, and by what.
STUMBLING = {
    "steps: stop sequences": (
        generate.StopSequences.Matcher,
        "advance",
        lambda self, token: token in self._root,
    ),
    "steps: who samples": (
        generate,
        "_normalize_samplers",
        lambda samplers, n, fallback: [lambda x, s=fallback: s(x) for _ in range(n)],
    ),
    "steps: what is counted": (generate.BatchGenerator, "_next", one_at_a_time),
    "steps: bytes of caches": (generate.BatchGenerator, "prompt_cache_nbytes", 4),
    "steps: who is padded": (generate, "max", lambda *of, **named: max(*of, **named) + 1),
}


def test_steps_are_right():
    assert {name for name, one in STEPS.items() if one.problem()} == set()


@pytest.mark.parametrize("name", STUMBLING)
def test_a_broken_step_is_detected(monkeypatch, name):
    monkeypatch.setattr(*STUMBLING[name], raising=False)
    assert STEPS[name].problem() != ""
