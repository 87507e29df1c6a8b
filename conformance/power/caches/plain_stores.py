"""Stores of tokens, which have no rows: each is compared with plain data in its own programs."""

from __future__ import annotations

from typing import Any, ClassVar

import mlx.core as mx
from hypothesis import strategies as st

from conformance.power.caches.sequence_store import SequenceStore
from conformance.power.caches.store_calls import Call, DiffersError, Store, agree, call


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
