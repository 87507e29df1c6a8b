"""Checks what mlx-lm's generator reports about its rows and caches against a second source."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, takewhile
from operator import eq
from typing import Any

from conformance.backend.cache_entries import arrays, leaves
from conformance.backend.recorded_sampler import RecordedSampler
from conformance.backend.redrawing import ComparedSampler
from conformance.core.counted import Clock, Counted, Pace
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Stage
from conformance.core.trace import Claim, TokenEvent, unused
from conformance.plugins.mlx_lm import compat


class Counting(Clock):
    """A generator's statistics from now on, from ``BatchGenerator.stats`` of 0.32 and later."""

    def __init__(self, generator: Any) -> None:
        super().__init__()
        self._window = contextlib.ExitStack()
        # Before 0.31.2 there is none, and the counts so far are returned.
        window: Any = generator.stats() if hasattr(generator, "stats") else None
        self._known = hasattr(window, "__enter__")
        self._stats: Any = self._window.enter_context(window) if self._known else None
        self._generator = generator
        # The last call's own window of statistics, and its duration.
        self.last: tuple[Any, float] = (None, 0.0)

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Measure a call in a window of its own, inside the outer one."""
        before, window, done = self.seconds, contextlib.nullcontext(None), False
        try:
            with super().measured(), self._generator.stats() if self._known else window as stats:
                yield
                done = True
        except ZeroDivisionError as error:
            # Up to 0.31.3, statistics divide by the time of a prefill or a decode step, even if
            # there was none; a call that failed has its own error.
            if not done:
                raise error.__context__ or error  # noqa: B904
            stats = None
        self.last = (stats, self.seconds - before)

    def counted(self) -> Counted | None:
        """End the window and return its statistics; ``None`` for releases without them."""
        try:
            self._window.close()
        except ZeroDivisionError:  # as above
            return None
        steps = getattr(self._stats, "generation_steps", None)
        return counted(self._stats, self.seconds, steps)


def counted(stats: Any, wall: float, steps: int | None = None) -> Counted | None:
    """The counts of the library's ``BatchStats``; ``None`` for releases that count less."""
    if not hasattr(stats, "decode_time"):
        return None
    return Counted(
        Pace(stats.prompt_tokens, stats.prompt_time, stats.prompt_tps),
        Pace(stats.generation_tokens, stats.decode_time, stats.decode_tps),
        stats.peak_memory,
        wall,
        last_left_out=True,  # mlx_lm/generate.py:1884 counts what PromptProcessingBatch feeds
        steps=steps,
    )


class Claims:
    """Collects claims until a step takes them."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator
        self._made: list[Claim] = []
        # For each request, the number of tokens fed at the end of each piece of its prompt.
        self._ends: dict[int, set[int]] = {}
        # For each request, its tokens so far: those before its prompt, its prompt and its output.
        self._tokens: dict[int, list[int]] = {}

    def taken(self) -> tuple[Claim, ...]:
        """The claims since the previous call."""
        made, self._made = tuple(self._made), []
        return made

    def live_bytes(self) -> None:
        """Claim the bytes of all caches: queued, in prefill and in decode."""
        said = compat.cache_bytes(self._generator)
        held = sum(int(a.nbytes) for a in arrays(compat.live_caches(self._generator)) if a.ndim > 1)
        self._add("bytes of live caches", said, held, held)
        each = list(leaves(compat.live_caches(self._generator)))
        empty = sum(compat.holds_nothing(cache) for cache in each)
        without = sum(not any(a.ndim > 1 for a in arrays(cache)) for cache in each)
        self._add("caches that hold nothing", empty, without, without)

    def step(self, stats: Any, seconds: float, *, prompts: int, tokens: int) -> None:
        """Claim the statistics of one step; nothing for releases without statistics.

        Steps are checked one by one: a count that is set instead of increased may be right at the
        end.

        Args:
            seconds: the duration of the step.
            prompts: the number of prompt tokens fed, without the tokens that decoding begins with.
            tokens: the number of tokens generated.
        """
        if not hasattr(stats, "decode_time"):
            return
        self._add("prompt tokens of a step", stats.prompt_tokens, prompts, prompts)
        self._add("tokens of a step", stats.generation_tokens, tokens, tokens)
        steps = getattr(stats, "generation_steps", bool(tokens))
        self._add("steps of decoding in a step", steps, bool(tokens), bool(tokens))
        self._add("seconds of decoding in a step", stats.decode_time, 0.0, seconds * bool(tokens))
        self._add("seconds of prefill in a step", stats.prompt_time, 0.0, seconds)

    def removed(self, returned: Any) -> None:
        """Claim that ``remove`` returns caches only if it is asked for them."""
        self._add("caches of removed rows, unasked", len(returned or ()), 0, 0)

    def rows(self, options: EngineOptions) -> None:
        """Claim that no more are at work than the options allow, and prompts in their order."""
        held = compat.uids_by_stage(self._generator)
        at = Counter(held.values())
        first = min((uid for uid, stage in held.items() if stage is Stage.QUEUED), default=None)
        begun = [uid for uid, stage in held.items() if stage is Stage.PREFILL]
        early = sum(uid > first for uid in begun) if first is not None else 0
        if compat.prefills_in_pieces():  # before, the queue was sorted by length
            self._add("prompts begun before one that came earlier", early, 0, 0)
        most = max(options.prefill_batch_size, options.completion_batch_size)
        self._add("prompts at once", at[Stage.PREFILL], 0, options.prefill_batch_size)
        self._add("rows at once", at[Stage.DECODE], 0, most)

    def inserted(
        self, uid: int, pieces: Sequence[Sequence[int]], before: Sequence[int] = ()
    ) -> None:
        """Register a new request's prompt in pieces, and the tokens that its cache already has.

        The prompt's last token is a piece by itself.
        """
        self._made.append(unused(uid, self._ends))
        self._tokens[uid] = [*before, *chain.from_iterable(pieces)]
        ends = list(accumulate(len(piece) for piece in pieces if piece))
        self._ends[uid] = {*ends, ends[-1] - 1} if ends else set()

    def piece(self, response: Any) -> None:
        """Claim that a piece ends with the tokens fed so far, before the end of the prompt."""
        if hasattr(response, "end_of_segment"):
            right = response.progress[0] in self._ends.get(response.uid, ())
            self._add("ends of a piece of a prompt", bool(response.end_of_segment), right, right)

    def ends(self, response: Any) -> None:
        """Claim that a prompt ends with its last piece, when all of it has been fed."""
        done, whole = response.progress
        self._add("ends of the last piece of a prompt", response.end_of_segment, 1, 1)
        self._add("tokens of a prompt that has ended", done, whole, whole)

    def produced(self, response: Any) -> None:
        """Register a row's next token; claim that a row that has ended has all of its tokens."""
        self._tokens.get(response.uid, []).append(int(response.token))
        if response.finish_reason is not None and response.all_tokens is not None:
            self.kept(response.uid, response.all_tokens)

    def kept(self, uid: int, tokens: Sequence[int]) -> None:
        """Claim that the tokens given out with the cache of a row that decodes are the row's."""
        whole = self._tokens.get(uid, [])
        alike = sum(takewhile(bool, map(eq, tokens, whole)))
        self._add("tokens of a row, beside its cache", len(tokens), len(whole), len(whole))
        self._add("tokens that are the row's, beside its cache", len(tokens), alike, alike)

    def chosen(self, sampler: RecordedSampler, event: TokenEvent) -> None:
        """Claim that the event's sampler was given the logprobs that the event reports."""
        self._made.append(sampler.claim(event))

    def about(self, claims: Iterable[Claim]) -> None:
        """Claim what others have found."""
        self._made += claims

    def drawn(self, sampler: object) -> None:
        """Claim what one of the library's samplers drew."""
        if isinstance(sampler, ComparedSampler):
            calls = sampler.drawn()
            # One for rows whose prompts have ended, and one for rows that decode.
            self._add("calls of a sampler that rows share", len(calls), 0, 2)
            self._made += [sampler.claim(*call) for call in calls]

    def _add(self, what: str, said: float, least: float, most: float) -> None:
        found = f"{least:g}" if least == most else f"{least:g} to {most:g}"
        self._made.append(Claim(what, f"{said:g}", found, least <= said <= most))
