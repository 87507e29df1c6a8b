"""Faults of drafts: what stays of the rejected, what is missing of the accepted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from conformance.core.faults.base import Hits, replaced
from conformance.plugins.mlx_vlm.faults.patching import fault, part

_CLASS = "speculative"
_NEEDS = ("drafter:*",)


# The rounds of each kind of drafter end in the same function, which each module imports by name.
_ROUNDS = ("speculative.dflash", "speculative.eagle3", "speculative.mtp")
_COMMIT = "commit_speculative_round"
Commit: TypeAlias = Callable[[Any, Any, Any, Any, int], None]


def _counts(accepted: Any) -> list[int]:
    if isinstance(accepted, int):
        return [accepted]
    values = accepted.reshape(-1).tolist() if hasattr(accepted, "tolist") else accepted
    return [int(one) for one in values]


@contextlib.contextmanager
def _replaced(wrap: Callable[[Commit], Commit]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name in _ROUNDS:
            module = part(name)
            stack.enter_context(replaced(module, _COMMIT, wrap(getattr(module, _COMMIT))))
        yield


def _counted(
    change: Callable[[list[int], int], list[int]], hits: Hits
) -> AbstractContextManager[None]:
    """Caches keep ``change(accepted, drafted)`` tokens of the drafts of each row."""

    def wrap(real: Commit) -> Commit:
        def commit(model: Any, caches: Any, state: Any, accepted: Any, block: int) -> None:
            right = _counts(accepted)
            wrong = change(right, block - 1)
            if wrong != right:
                hits.hit()
            given = wrong[0] if isinstance(accepted, int) else wrong
            real(model, caches, state, given, block)

        return commit

    return _replaced(wrap)


def _rejected_stay(hits: Hits) -> AbstractContextManager[None]:
    return _counted(lambda counts, drafted: [drafted] * len(counts), hits)


def _one_more_kept(hits: Hits) -> AbstractContextManager[None]:
    return _counted(lambda counts, drafted: [min(n + 1, drafted) for n in counts], hits)


def _last_missing(hits: Hits) -> AbstractContextManager[None]:
    return _counted(lambda counts, drafted: [min(n, drafted - 1) for n in counts], hits)


def _of_row_0(hits: Hits) -> AbstractContextManager[None]:
    return _counted(lambda counts, _: counts[:1] * len(counts), hits)


def _of_the_longest(hits: Hits) -> AbstractContextManager[None]:
    return _counted(lambda counts, _: [max(counts)] * len(counts), hits)


def _kept(kinds: tuple[str, ...], hits: Hits) -> AbstractContextManager[None]:
    """Caches of these classes are left as they were before the rejected tokens were taken back."""

    def wrap(real: Commit) -> Commit:
        def commit(model: Any, caches: Any, state: Any, accepted: Any, block: int) -> None:
            kinds_here = tuple(getattr(part("models.cache"), kind) for kind in kinds)
            left = [c for c in caches if isinstance(c, kinds_here)]
            whole = [_copied(vars(c)) for c in left]
            real(model, caches, state, accepted, block)
            if left and min(_counts(accepted)) < block - 1:
                hits.hit()
                for cache, values in zip(left, whole, strict=True):
                    vars(cache).update(values)

        return commit

    return _replaced(wrap)


def _copied(values: Any) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, list) else value
        for name, value in values.items()
        if not callable(value) and name != "_speculation"
    }


def _recurrent_kept(hits: Hits) -> AbstractContextManager[None]:
    return _kept(("ArraysCache",), hits)


def _window_kept(hits: Hits) -> AbstractContextManager[None]:
    return _kept(("RotatingKVCache", "BatchRotatingKVCache"), hits)


FAULTS = (
    fault(
        "E6.rejected-drafts-stay",
        _CLASS,
        "tokenspeed #205",
        "rejected tokens stay in the caches",
        _rejected_stay,
        kills="speculative",
        where="cache:*",
        needs=_NEEDS,
    ),
    fault(
        "E6.rejected-tail-of-shorter-rows-stays",
        _CLASS,
        "tokenspeed #205",
        "caches of all rows keep as many tokens as the row that accepted most",
        _of_the_longest,
        kills="speculative",
        where="cache:*",
        needs=_NEEDS,
    ),
    fault(
        "E6.one-rejected-draft-kept",
        _CLASS,
        "tokenspeed #205",
        "the first rejected token stays in all caches",
        _one_more_kept,
        kills="speculative",
        where="cache:*",
        needs=_NEEDS,
    ),
    fault(
        "E7.last-accepted-missing",
        _CLASS,
        "tokenspeed #205",
        "after a draft that was right to its end the caches lack its last token",
        _last_missing,
        kills="speculative",
        where="cache:*",
        needs=_NEEDS,
    ),
    fault(
        "E6.accepted-count-of-row-0",
        _CLASS,
        "tokenspeed #205",
        "caches of all rows are cut by the number of tokens that row 0 accepted",
        _of_row_0,
        kills="speculative",
        where="cache:*",
        needs=_NEEDS,
    ),
    fault(
        "F9.recurrent-state-not-rolled-back",
        _CLASS,
        "issue trackers",
        "recurrent state keeps rejected tokens",
        _recurrent_kept,
        kills="speculative",
        where="cache:*",
        needs=("drafter:*", "cache:ArraysCache"),
    ),
    fault(
        "F9.window-not-rolled-back",
        _CLASS,
        "issue trackers",
        "a sliding window keeps rejected tokens, and what they pushed out is lost",
        _window_kept,
        kills="speculative",
        where="cache:*",
        needs=("drafter:*", "cache:RotatingKVCache"),
    ),
)
