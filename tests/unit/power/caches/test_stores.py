"""Stores of tokens beside plain data: right as released, and each planted fault is found."""

import copy

import pytest
from mlx_lm.models import cache as lm

from conformance.power.caches.discovery import discover
from conformance.power.caches.sequences import explore
from conformance.power.caches.stores import STORES

FOUND = {found.cls.__name__: found for found in discover() if found.is_store}


@pytest.mark.parametrize("name", STORES)
def test_what_is_released_is_right(name):
    outcome = explore(FOUND[name], examples=60)
    assert outcome.failure is None
    assert outcome.sequences == 60
    assert not FOUND[name].kinds
    assert FOUND[name].covered


def kept_itself(patch):
    patch.setattr(lm.copy, "deepcopy", copy.copy)


def newest_given_up(patch):
    def pop(self):
        return next(lru.pop() for lru in self._lrus.values() if lru)

    patch.setattr(lm.LRUPromptCache.CacheOrder, "pop", pop)


def replaced_not_said(patch):
    right = lm.PromptTrie.add

    def add(self, *args):
        right(self, *args)

    patch.setattr(lm.PromptTrie, "add", add)


def one_for_all_models(patch):
    right = lm.PromptTrie.search
    patch.setattr(lm.PromptTrie, "search", lambda self, _, tokens: right(self, "one", tokens))


def whole_where_it_should_be_cut(patch):
    patch.setattr(lm, "trim_prompt_cache", lambda *_: None)


def cut_where_it_cannot_be(patch):
    patch.setattr(lm, "can_trim_prompt_cache", lambda _: True)


def bound_met_from_below(patch):
    right = lm.LRUPromptCache.trim_to

    def trim_to(self, *, n_sequences=None, n_bytes=None):
        right(self, n_sequences=n_sequences, n_bytes=n_bytes and n_bytes - 1)

    patch.setattr(lm.LRUPromptCache, "trim_to", trim_to)


def kind_forgotten(patch):
    right = lm.LRUPromptCache.CacheOrder.push
    patch.setattr(lm.LRUPromptCache.CacheOrder, "push", lambda self, *key: right(self, *key[:2]))


def tokens_overwritten(patch):
    right = lm.TokenBuffer.update_and_fetch

    def update(self, tokens):
        given = right(self, tokens)
        self._size -= self._size % 5 == 0
        return given

    patch.setattr(lm.TokenBuffer, "update_and_fetch", update)


def grown_without_end(patch):
    right = lm.TokenBuffer.update_and_fetch

    def update(self, tokens):
        self._buffer = lm.mx.concatenate([self._buffer, self._buffer])
        return right(self, tokens)

    patch.setattr(lm.TokenBuffer, "update_and_fetch", update)


@pytest.mark.parametrize(
    ("name", "fault", "what"),
    [
        ("LRUPromptCache", kept_itself, "returned: found of"),
        ("LRUPromptCache", newest_given_up, "returned"),
        ("LRUPromptCache", replaced_not_said, "returned"),
        ("LRUPromptCache", one_for_all_models, "returned"),
        ("LRUPromptCache", whole_where_it_should_be_cut, "returned: found of"),
        ("LRUPromptCache", cut_where_it_cannot_be, ""),
        ("LRUPromptCache", bound_met_from_below, "returned: its number of sequences"),
        ("LRUPromptCache", kind_forgotten, "returned: what it counts of"),
        ("TokenBuffer", tokens_overwritten, "returned: "),
        ("TokenBuffer", grown_without_end, "size: room for"),
    ],
)
def test_a_planted_fault_is_found_and_its_calls_are_few(name, fault, what, monkeypatch):
    fault(monkeypatch)
    failure = explore(FOUND[name], examples=80).failure
    assert failure is not None
    assert what in str(failure)
    assert len(failure.steps) <= 6
    assert failure.as_dict()["class"] == f"mlx_lm.{name}"
