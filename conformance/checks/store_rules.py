"""Checks that a sequence store finds, counts and evicts what it should.

The rules are those of mlx-lm's server (``mlx_lm.models.cache.LRUPromptCache``), implemented a
second time: the oldest sequence of the least valuable kind is evicted first (an answer, then a
user's turn, then a system prompt), but not if its kind has fewer sequences than the next kind; if
caches can be cut, a sequence replaces all its prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile

from conformance.checks.play import Play
from conformance.core.pooled import KeptSequence, StoreCall, Stored
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict

# From the least valuable.
KINDS = ("assistant", "user", "system")
Tokens = tuple[int, ...]


def check_stored(play: Play) -> list[Finding]:
    """``protocol`` for a sequence found or kept against the rules, ``leak`` for wrong counts.

    For each run the first of each kind.
    """
    return [finding for trace in play.traces[:2] for finding in _of_run(play, trace)]


def _of_run(play: Play, trace: Trace) -> Iterator[Finding]:
    calls = [call for step in trace.steps for call in step.output.stored]
    for problems in (_against_rules(calls), _miscounted(calls), _shared(calls)):
        for verdict, what, expected, got in problems:
            yield Finding(
                verdict,
                "store_rules",
                what,
                schedule=play.schedule.name,
                mode=trace.mode,
                expected=expected,
                got=got,
                cause="the store of kept sequences does not keep its own rules",
            )
            break


Problem = tuple[Verdict, str, str, str]


def _against_rules(calls: list[Stored]) -> Iterator[Problem]:
    rules = _Rules()
    for number, call in enumerate(calls):
        found = rules.play(call)
        if call.call is StoreCall.FETCH and call.found != found:
            what = f"of a prompt of {len(call.tokens)} tokens another prefix is found than is kept"
            yield Verdict.PROTOCOL, what, f"{found} tokens", f"{call.found} tokens"
        kept = [(one.kind, one.tokens) for one in call.kept]
        if kept != rules.kept:
            what = f"after call {number}, {call.call}, other sequences are kept"
            yield Verdict.PROTOCOL, what, _named(rules.kept), _named(kept)
            return


def _miscounted(calls: list[Stored]) -> Iterator[Problem]:
    for number, call in enumerate(calls):
        for one in call.kept:
            if one.counted != one.held:
                what = f"a kept {one.kind} sequence of {len(one.tokens)} tokens is miscounted"
                yield Verdict.LEAK, what, f"{one.held} bytes", f"{one.counted} bytes"
        whole = sum(one.counted for one in call.kept)
        if call.total is not None and call.total != whole:
            what = f"after call {number}, {call.call}, the bytes of all sequences are miscounted"
            yield Verdict.LEAK, what, f"{whole} bytes", f"{call.total} bytes"
        for kind, counted in call.counted.items():
            mine = [one.counted for one in call.kept if one.kind == kind]
            if counted != (len(mine), sum(mine)):
                what = f"after call {number}, {call.call}, the count of {kind} sequences is wrong"
                yield Verdict.LEAK, what, _counts(len(mine), sum(mine)), _counts(*counted)


def _shared(calls: list[Stored]) -> Iterator[Problem]:
    for call in calls:
        if call.shared:
            what = f"what is found of a prompt of {len(call.tokens)} tokens is what is kept"
            yield Verdict.PROTOCOL, what, "a copy", "the same caches"


@dataclass
class _Rules:
    """The sequences kept by the rules: by kind, the oldest first, with their bytes."""

    of: dict[str, dict[Tokens, int]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    cut: bool = False

    @property
    def kept(self) -> list[tuple[str, Tokens]]:
        return [(kind, tokens) for kind in KINDS for tokens in self.of[kind]]

    def play(self, call: Stored) -> int:
        """Apply a call; return how many tokens it finds."""
        if call.call is StoreCall.FETCH:
            return self._found(call.tokens)
        if call.call is StoreCall.INSERT:
            self._insert(call)
            if len(self.kept) > call.most:
                self._give_up()
        while call.call is StoreCall.BOUND and self._nbytes > call.most:
            self._give_up()
        return 0

    def _found(self, prompt: Tokens) -> int:
        """The last token of a prompt is always left to compute."""
        most = len(prompt) - 1
        shared = {tokens: min(_common(prompt, tokens), most) for _, tokens in self.kept}
        whole = (n for tokens, n in shared.items() if n == len(tokens))
        return max(shared.values() if self.cut else whole, default=0)

    def _insert(self, call: Stored) -> None:
        self.cut = call.cut
        for of_kind in self.of.values():
            for tokens in list(of_kind):
                shorter = call.tokens[: len(tokens)] == tokens
                if tokens == call.tokens or (shorter and call.cut):
                    del of_kind[tokens]
        own = next(one for one in (*call.kept, _like(call)) if one.tokens == call.tokens)
        self.of[call.kind][call.tokens] = own.held

    def _give_up(self) -> None:
        counts = [len(self.of[kind]) for kind in KINDS]
        pairs = zip(KINDS, counts, counts[1:], strict=False)
        kind = next((kind for kind, n, above in pairs if n and n >= above), KINDS[-1])
        oldest = next(iter(self.of[kind]))
        del self.of[kind][oldest]

    @property
    def _nbytes(self) -> int:
        return sum(sum(of_kind.values()) for of_kind in self.of.values())


def _like(call: Stored) -> KeptSequence:
    """Sequences that should have been kept but were not."""
    return KeptSequence(call.kind, call.tokens, 0, 0)


def _common(one: Tokens, other: Tokens) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _named(kept: list[tuple[str, Tokens]]) -> str:
    return ", ".join(f"{kind} of {len(tokens)}" for kind, tokens in kept) or "none"


def _counts(number: int, nbytes: int) -> str:
    return f"{number} sequences, {nbytes} bytes"
