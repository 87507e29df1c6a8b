"""A scenario: a named maker of schedules, its needs, and the witnesses it must show."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import numpy as np

from conformance.core.engine import Capability, PrefixReuse
from conformance.core.engine_options import EngineOptions
from conformance.core.family import Family
from conformance.core.schedule import Media, Request, Schedule
from conformance.core.trace import Stream, Trace

SoloFn = Callable[[Request, EngineOptions], Stream]
Composed = tuple[tuple[int, ...], tuple[Media, ...]]
ComposeFn = Callable[[Sequence[tuple[int, ...] | Media]], Composed]


def _text_only(parts: Sequence[tuple[int, ...] | Media]) -> Composed:
    texts = [part for part in parts if not isinstance(part, Media)]
    return tuple(token for text in texts for token in text), ()


def _any(schedule: str) -> bool:  # noqa: ARG001
    return True


@dataclass(frozen=True)
class Brief:
    """What a scenario knows about the subject that it makes schedules for.

    Attributes:
        tokens: half-open range of token ids for prompts.
        window: the model's smallest sliding window or chunk; ``None`` if it has none.
        longest: the most tokens of a sequence that the model has positions for, if bounded.
        bounded: whether ``max_kv_size`` bounds the model's caches.
        seed: the case's seed; other seeds give other prompts of the same lengths.
        capabilities: the capabilities that the engine declares.
        probes: the invalid calls that the engine's ``probe`` can make.
        solo: gives the oracle's stream of a request, for scenarios that need it (stop sequences).
        modalities: what the family's requests may contain.
        sizes: for each kind of media, the sizes that its requests use.
        required: the kind of media that every request must contain; empty if none.
        beside: whether the model attends to media by cross attention, outside of the sequence.
        single: the kinds of media of which a request may contain only one.
        media_last: whether the library's chat template puts media after the text.
        drafters: the kinds of drafters that the family has.
        compose: makes a prompt of text and media.
        heads: gives the sizes of heads that can be quantized; see ``Library.head_sizes``.
        schemes: the quantization schemes; see ``Library.schemes``.
        filters: arguments of samplers; see ``Library.filters``.
        texts: token ids of real texts to cut prompts from; if empty, prompts are random.
        family: the family's name.
        library: the name of its library.
        uncut: whether prompts with media are always prefilled whole.
        plays: whether the schedule with this name will be played; a maker need spend nothing on
            the contents of another.
    """

    tokens: tuple[int, int]
    window: int | None
    bounded: bool
    seed: int
    capabilities: frozenset[Capability]
    probes: tuple[str, ...]
    solo: SoloFn
    modalities: tuple[str, ...] = ("text",)
    sizes: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    required: str = ""
    beside: bool = False
    single: tuple[str, ...] = ()
    media_last: bool = False
    drafters: tuple[str, ...] = ()
    compose: ComposeFn = _text_only
    heads: Callable[[], frozenset[int]] = frozenset
    schemes: tuple[str, ...] = ("uniform",)
    filters: Mapping[str, float] = field(default_factory=dict)
    texts: tuple[tuple[int, ...], ...] = ()
    family: str = ""
    library: str = ""
    uncut: bool = False
    longest: int | None = None
    plays: Callable[[str], bool] = _any

    def prompt(self, length: int, variant: int = 0) -> tuple[int, ...]:
        """A prompt of ``length`` tokens; equal arguments give an equal prompt in every scenario.

        Therefore the oracle's stream for it is made only once.
        """
        if self.texts:
            return self._cut(np.random.default_rng((self.seed, length, variant)), length)
        return _random_prompt((self.seed, length, variant), self.tokens)

    def _cut(self, rng: np.random.Generator, length: int) -> tuple[int, ...]:
        """A piece of the joined texts, which continue at their start after their end.

        Pieces begin with different tokens; otherwise different prompts might share a prefix.
        """
        joined = [token for text in self.texts for token in text]
        begins = sorted({token: at for at, token in enumerate(joined)}.values())
        begin = begins[rng.integers(len(begins))]
        return tuple(joined[(begin + index) % len(joined)] for index in range(length))


@functools.lru_cache(maxsize=1024)
def _random_prompt(seeds: tuple[int, int, int], tokens: tuple[int, int]) -> tuple[int, ...]:
    """Draw random tokens; cached, since exploring uses the same prompts thousands of times."""
    _, length, _ = seeds
    return tuple(int(t) for t in np.random.default_rng(seeds).integers(*tokens, length))


@dataclass(frozen=True)
class Witness:
    """Proof that a schedule reached what its scenario is named for.

    ``seen`` is called with the trace of one schedule; the witness holds if it is true for at least
    one schedule of the scenario. ``name`` is what a report shows as missing otherwise.

    Attributes:
        schedules: globs of the schedules that are made to show it; if none of them is run, it is
            not required. Empty: all schedules are.
        reach: whether a schedule can show it on an engine with these rules for reusing prefixes; if
            none can because of what the engine declares, it is not required.
        essential: the scenario proves nothing without it: if no schedule can show it, the case is
            ``unsupported``.
        needs: not required of an engine without these capabilities.
        shared: needs rows in one pass. For a model whose rows can't share a pass
            (``Engine.apart``), the case is ``unsupported``, for the engine's reason.
        rows: needs so many requests at once: not required of an engine that declares fewer slots,
            nor of a server at a URL that is seen to have fewer.
        cut: needs a prompt in pieces. Not required for a model whose prompts are never cut
            (``Engine.uncut``).
        beside: needs requests next to each other. Not required where they wait for each other
            (``Engine.in_turn``).
    """

    name: str
    seen: Callable[[Trace], bool]
    needs: frozenset[Capability] = frozenset()
    shared: bool = False
    rows: int = 0
    cut: bool = False
    beside: bool = False
    schedules: tuple[str, ...] = ()
    reach: Callable[[Schedule, PrefixReuse], bool] | None = None
    essential: bool = False

    def shown_in(self, *schedules: str) -> Witness:
        """The same witness, for a scenario in which these schedules are made to show it."""
        return replace(self, schedules=schedules)

    def made_for(self, schedule: str) -> bool:
        """Whether the schedule with this name is made to show it."""
        return not self.schedules or any(fnmatchcase(schedule, g) for g in self.schedules)


def always(family: Family) -> str:  # noqa: ARG001
    """Returns no reason against a scenario: it applies to every family."""
    return ""


@dataclass(frozen=True)
class Scenario:
    """A rung of the ladder.

    Attributes:
        name: the name in case ids and on the command line.
        rung: its place in the ladder, from the simplest to the most complex.
        summary: one line: the ingredient that it adds.
        needs: capabilities that an engine must have.
        make: makes the schedules of a case; each is run forced and free.
        witnesses: if a witness that the engine could show is missing, the case is ``vacuous``.
        oracle_only: the oracle is compared with itself; no engine runs.
        applies: the reason why the scenario does not apply to a family, in one short clause; empty
            if it applies.
    """

    name: str
    rung: int
    summary: str
    needs: frozenset[Capability]
    make: Callable[[Brief], Sequence[Schedule]]
    witnesses: tuple[Witness, ...] = ()
    oracle_only: bool = False
    applies: Callable[[Family], str] = always

    @property
    def served(self) -> bool:
        """Whether it is only for servers."""
        return Capability.SERVED in self.needs

    def lacking(self, capabilities: frozenset[Capability]) -> str:
        """Why an engine with these capabilities does not run it; empty if it does."""
        lacking = sorted(self.needs - capabilities)
        if lacking:
            return f"the engine lacks {', '.join(lacking)}"
        if Capability.SERVED in capabilities and not self.served:
            return "it needs the calls of the model, which a server does not show"
        return ""
