"""Stores of tokens, which have no rows: each is compared with plain data, call by call."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Protocol

import mlx.core as mx
import numpy as np
from hypothesis import strategies as st

from conformance.power.caches.finding import FindingError, Problem, raised_at

Call = tuple[str, tuple[Any, ...]]


def call(name: str, *numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    """Calls of this name with drawn numbers."""
    return st.tuples(st.just(name), st.tuples(*numbers))


class DiffersError(AssertionError):
    """The store differs from plain data."""

    def __init__(self, what: str, text: str) -> None:
        self.problem = Problem(what, text)
        super().__init__(text)


def agree(what: str, said: object, right: object) -> None:
    """Raise ``DiffersError`` if the store's value differs from plain data."""
    if said != right:
        raise DiffersError("returned", f"{what}: {said}, where {right} is right")


class Store(Protocol):
    """A store made from its class, and the programs to draw for it."""

    programs: ClassVar[st.SearchStrategy[tuple[Call, list[Call]]]]

    def __init__(self, cls: type[Any]) -> None: ...

    def compare(self) -> None:
        """Raise ``DiffersError`` for the first difference."""


def play_store(name: str, store: Store, calls: Sequence[Call], verbs: Counter[str]) -> None:
    """Make the calls, and compare after each.

    Raises:
        FindingError: the first difference.
    """
    steps = []
    for verb, numbers in calls:
        steps.append(f"{verb} {' '.join(map(str, numbers))}")
        verbs[verb] += 1
        try:
            getattr(store, verb)(*numbers)
            store.compare()
        except DiffersError as error:
            problem = error.problem
        except Exception as error:  # noqa: BLE001 (whatever the library raises is the finding)
            text = f"{type(error).__name__}: {error}{raised_at(error)}"
            problem = Problem("error", text)
        else:
            continue
        raise FindingError(name, verb, problem, facts=frozenset(), steps=steps)


KINDS = ("assistant", "user", "system")
"""Kinds of kept sequences, from the least valuable."""
_MODELS = ("one", "another")

Tokens = tuple[int, ...]
Key = tuple[str, Tokens]

_few_tokens = st.lists(st.integers(0, 2), min_size=1, max_size=5)
_model = st.integers(0, len(_MODELS) - 1)


class Kept(NamedTuple):
    """A kept sequence.

    Attributes:
        cut: whether its caches can be cut at any token.
        stamp: its own number, as another sequence may have the same tokens.
    """

    kind: str
    nbytes: int
    cut: bool
    stamp: int


@dataclass
class PlainStore:
    """The required contents of a store of sequences, the oldest first."""

    most: int
    most_bytes: int | None
    held: dict[Key, Kept] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """The bytes of all sequences."""
        return sum(one.nbytes for one in self.held.values())

    def insert(self, key: Key, new: Kept) -> None:
        """Add the newest sequence; it replaces its own prefixes if its caches can be cut."""
        model, tokens = key
        self.held.pop(key, None)
        self.held[key] = new
        for other in [k for k in self.held if new.cut and k[0] == model and k != key]:
            if tokens[: len(other[1])] == other[1]:
                del self.held[other]
        if len(self.held) > self.most:
            self._give_up()
        if self.most_bytes is not None:
            self.bound(nbytes=self.most_bytes)

    def bound(self, *, number: int | None = None, nbytes: int | None = None) -> None:
        """Evict sequences until the bounds are met."""
        while number is not None and len(self.held) > number:
            self._give_up()
        while nbytes is not None and self.nbytes > nbytes:
            self._give_up()

    def _give_up(self) -> None:
        """Evict the oldest sequence of the first kind with at least as many as the next kind."""
        of = {kind: [k for k, v in self.held.items() if v.kind == kind] for kind in KINDS}
        pairs = pairwise(KINDS)
        enough = (kind for kind, up in pairs if of[kind] and len(of[kind]) >= len(of[up]))
        del self.held[of[next(enough, KINDS[-1])][0]]

    def found(self, key: Key) -> Iterator[tuple[int, Kept | None]]:
        """Pairs, each right: how many tokens of a prompt may be found, and in which sequence."""
        model, prompt = key
        if key in self.held:
            yield len(prompt), self.held[key]
            return
        own = {tokens: v for (of, tokens), v in self.held.items() if of == model}
        whole = max((t for t in own if prompt[: len(t)] == t), key=len, default=())
        shared = max((_common(prompt, t) for t in own), default=0)
        if shared > len(whole):
            beyond = [t for t in own if _common(prompt, t) == shared]
            least = min(map(len, beyond))
            nearest = [own[t] for t in beyond if len(t) == least]
            yield from ((min(shared, len(prompt) - 1), one) for one in nearest if one.cut)
            if all(one.cut for one in nearest):
                return
        yield len(whole), own.get(whole)
        if len(whole) == 1:  # not looked up (mlx_lm/models/cache.py:1578), only computed again
            yield 0, None


def _common(one: Tokens, other: Tokens) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


class SequenceStore:
    """A store of sequences and its required contents.

    ``insert`` keeps a sequence, ``number`` and ``bytes`` bound all, ``fetch`` looks up a prompt.
    """

    programs: ClassVar[st.SearchStrategy[tuple[Call, list[Call]]]] = st.tuples(
        call("new", st.integers(1, 4), st.integers(0, 9)),
        st.lists(
            st.one_of(
                # Drawn more often than the others: an empty store shows nothing.
                *(
                    call("insert", _model, st.integers(0, 2), st.integers(0, 2), _few_tokens)
                    for _ in range(4)
                ),
                call("number", st.integers(-1, 3)),
                call("bytes", st.integers(-1, 4)),
                call("fetch", _model, _few_tokens),
            ),
            min_size=4,
            max_size=9,
        ),
    )

    def __init__(self, cls: type[Any]) -> None:
        self._cls = cls
        self._module: ModuleType = importlib.import_module(cls.__module__)
        self._asked: dict[Key, None] = {}
        self._stamp = 0

    def new(self, most: int, columns: int) -> None:
        """Make a store for ``most`` sequences and the bytes of ``columns``; 0: any number."""
        one = self._made((0,), cut=True)[0].nbytes
        limit = {"max_bytes": one * columns // 2} if columns else {}
        self._store = self._cls(most, **limit)
        self._plain = PlainStore(most, limit.get("max_bytes"))

    def insert(self, model: int, kind: int, whole: int, tokens: Sequence[int]) -> None:
        """Keep a sequence; a third cannot be cut, except sequences of one token."""
        self._stamp += 1
        key = (_MODELS[model], tuple(tokens))
        cut = whole > 0 or len(tokens) == 1
        caches = self._made(key[1], cut=cut)
        nbytes = sum(cache.nbytes for cache in caches)
        # The kind of an answer is omitted, as it is the default.
        named = {"cache_type": KINDS[kind]} if kind else {}
        self._store.insert_cache(key[0], list(key[1]), caches, **named)
        self._plain.insert(key, Kept(KINDS[kind], nbytes, cut, self._stamp))
        self._asked[key] = None

    def number(self, most: int) -> None:
        """Keep at most ``most`` sequences; negative numbers mean none."""
        self._store.trim_to(n_sequences=most)
        self._plain.bound(number=max(0, most))

    def bytes(self, quarters: int) -> None:
        """Keep at most this many quarters of the current bytes."""
        most = self._plain.nbytes * quarters // 4
        self._store.trim_to(n_bytes=most)
        self._plain.bound(nbytes=max(0, most))

    def fetch(self, model: int, tokens: Sequence[int]) -> None:
        """Look up a prompt, now and after each later call."""
        self._asked[_MODELS[model], tuple(tokens)] = None

    def compare(self) -> None:
        """Compare everything.

        Raises:
            DiffersError: the first difference.
        """
        plain = self._plain
        agree("its number of sequences", len(self._store), len(plain.held))
        agree("its bytes", self._store.nbytes, plain.nbytes)
        for kind in KINDS:
            own = [one.nbytes for one in plain.held.values() if one.kind == kind]
            right = {"n_sequences": len(own), "n_bytes": sum(own)}
            agree(f"what it counts of {kind}", self._store.stats_by_type().get(kind), right)
        for key in self._asked:
            self._ask(key)

    def _ask(self, key: Key) -> None:
        model, prompt = key
        caches, rest = self._store.fetch_nearest_cache(model, list(prompt))
        count = len(prompt) - len(rest)
        agree(f"what is left of {prompt}", tuple(rest), prompt[count:])
        said = self._read(caches, prompt[:count])
        right = [_content(n, one) for n, one in self._plain.found(key)]
        agree(f"found of {prompt} of model {model}", said, said if said in right else right[0])
        if caches:  # the result is a copy: decoding with it must not change the store
            caches[0].update_and_fetch(*_columns([9], 0))

    def _made(self, tokens: Tokens, *, cut: bool) -> list[Any]:
        attention = self._module.KVCache()
        attention.update_and_fetch(*_columns(tokens, self._stamp))
        if cut:
            return [attention]
        recurrent = self._module.ArraysCache(1)
        recurrent[0] = mx.full((1, 2), float(self._stamp))
        return [attention, recurrent]

    @staticmethod
    def _read(caches: Any, tokens: Tokens) -> tuple[object, ...]:
        """The number of tokens in caches, their stamp, and whether they are the right tokens."""
        if caches is None:
            return (0, None)
        keys, values = (np.array(a) for a in caches[0].state[:2])
        count = int(caches[0].offset)
        held = tuple(keys[0, 0, :count, 0].astype(int).tolist())
        stamps = {int(s) for s in values[0, 0, :count, 0]} | {
            int(cache[0][0, 0].item()) for cache in caches[1:]
        }
        return (count, *sorted(stamps)) if held == tokens else (f"tokens {held}",)


def _content(count: int, one: Kept | None) -> tuple[object, ...]:
    if one is None:
        return (0, None)
    return (count, one.stamp) if count or not one.cut else (0,)


def _columns(tokens: Sequence[int], stamp: int) -> tuple[mx.array, mx.array]:
    keys = mx.array([[[[float(token)] * 2 for token in tokens]]])
    return keys, mx.full(keys.shape, float(stamp))


class TokenStore:
    """A row's buffer of tokens, compared with a list."""

    programs: ClassVar[st.SearchStrategy[tuple[Call, list[Call]]]] = st.tuples(
        call("new", st.integers(0, 9)),
        st.lists(call("add", st.integers(1, 6)), min_size=3, max_size=8),
    )

    def __init__(self, cls: type[Any]) -> None:
        self._cls = cls
        self._tokens: list[int] = []

    def new(self, count: int) -> None:
        """Make the buffer with ``count`` tokens; 0: without tokens."""
        self._tokens = list(range(100, 100 + count))
        self._buffer = self._cls(list(self._tokens)) if count else self._cls()

    def add(self, count: int) -> None:
        """Add ``count`` tokens at once."""
        more = [1000 + len(self._tokens) + n for n in range(count)]
        self._tokens += more
        given = self._buffer.update_and_fetch(mx.array(more, mx.uint32))
        agree("the tokens that it gives", given.tolist(), self._tokens)

    def compare(self) -> None:
        """Compare all contents.

        Raises:
            DiffersError: the first difference.
        """
        agree("its tokens", self._buffer.tokens.tolist(), self._tokens)
        agree("their dtype", self._buffer.tokens.dtype, mx.int32)
        room = int(self._buffer.state.size)
        if not len(self._tokens) <= room < len(self._tokens) + self._cls.step + 1:
            raise DiffersError("size", f"room for {room} tokens, {len(self._tokens)} are held")


STORES: dict[str, type[Store]] = {
    "LRUPromptCache": SequenceStore,
    "TokenBuffer": TokenStore,
}
"""The stores, by the name of the tested class."""
