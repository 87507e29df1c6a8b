"""The engine protocol: four methods and a declared set of capabilities.

An engine decodes many requests in one batch. An adapter wraps a library's generator in this
protocol; the runner runs schedules through it and uses nothing else of the engine.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import msgspec

from conformance.core.accepted_fields import Accepted, Passed
from conformance.core.counted import Counted
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.family import Family
from conformance.core.faults.declaration import Injection
from conformance.core.rounds import Hints
from conformance.core.schedule import Request, Schedule, Stage
from conformance.core.trace import CachedLayer, KeptCache, ProbeResult, StepOutput


@dataclass(frozen=True)
class PrefixReuse:
    """The rules by which an engine reuses prefixes of prompts, in addition to its options.

    A run in which the engine breaks a declared rule has the verdict ``protocol``.

    Attributes:
        smallest: shorter prefixes are never reused; in tokens.
        block_size: prefixes are reused in whole blocks of this many tokens, whatever the options
            say; 0 for the options' ``block_size``.
        on_completion: a prompt can be reused only after its request has ended.
    """

    smallest: int = 0
    block_size: int = 0
    on_completion: bool = False

    def __str__(self) -> str:
        declared = (f for f in fields(self) if getattr(self, f.name) != f.default)
        return ", ".join(f"{f.name}={getattr(self, f.name)}" for f in declared)

    def each_alone(self) -> tuple[PrefixReuse, ...]:
        """One object for each declared rule, with only that rule."""
        found = (replace(PrefixReuse(), **{f.name: getattr(self, f.name)}) for f in fields(self))
        return tuple(rule for rule in found if rule != PrefixReuse())

    def whole(self, count: int, block_size: int) -> int:
        """How many of ``count`` tokens may be reused, if the options have that block size."""
        kept = count - count % (self.block_size or block_size)
        return kept if kept >= self.smallest else 0


class Capability(enum.StrEnum):
    """What an engine can do. A scenario applies to engines that have all capabilities it needs."""

    FORCED = "forced"  # a row can be fed given tokens
    LOGPROBS = "logprobs"  # every step's distribution over the whole vocabulary
    STAGES = "stages"  # it reports the stage of each request
    TOGETHER = "together"  # several prompts are prefilled in one pass
    CHUNKED = "chunked"  # prefill in pieces of prefill_step_size
    LATE_JOIN = "late_join"  # requests can arrive while others decode
    SLOTS = "slots"  # more requests than rows; the others wait
    CANCEL = "cancel"  # remove() in every stage
    SAMPLERS = "samplers"  # a sampler for each request
    PROCESSORS = "processors"  # logits processors for each request
    BUDGETS = "budgets"  # a thinking budget for each request, after which tokens are forced
    DEFAULTS = "defaults"  # engine-level sampler and processors, for requests without
    STOP = "stop"  # stop sequences for each request
    STOP_TOKENS = "stop_tokens"  # tokens that end any request
    SEGMENTS = "segments"  # a prompt is given in pieces of given lengths
    PREFIX = "prefix"  # a request can continue from an extracted cache
    SAVED = "saved"  # an extracted cache can be written to a file and loaded
    MEDIA = "media"  # images, videos or sounds in a prompt
    QUANTIZED = "quantized"  # keys and values in fewer bits
    SPECULATIVE = "speculative"  # a drafter guesses tokens, the model verifies several at once
    PREFIX_CACHING = "prefix_caching"  # equal prefixes of prompts are computed only once
    STORED = "stored"  # steps report the calls of the sequence store
    POOLED = "pooled"  # steps report the calls of the prefix pool
    TENANTS = "tenants"  # requests of different tenants reuse nothing of each other
    WEIGHED = "weighed"  # pending() and give_up() report the memory of the caches
    PROBES = "probes"  # probe() makes invalid calls
    THREADS = "threads"  # can be driven from another thread than the loading one
    METERED = "metered"  # all work is done in calls of the model, so that its cost can be counted
    COUNTED = "counted"  # a server whose process records the calls of its model on request
    COMPLETIONS = "completions"  # a server completes texts, not only chats
    MESSAGES = "messages"  # a server has Anthropic's /v1/messages
    SCHEMAS = "schemas"  # a server accepts a JSON schema for its answer, or refuses it
    ADAPTERS = "adapters"  # a server loads adapters on request
    MODELS = "models"  # a server loads other models on request
    ENDPOINTS = "endpoints"  # a server also has /v1/messages and /v1/responses
    MARKERS = "markers"  # a server removes reasoning and tool calls from the text of its answers
    PIECES = "pieces"  # the tokens of a server's checkpoint can be parts of words and characters
    SERVED = "served"  # a server, asked over HTTP; made with an Origin, not a model


@dataclass(frozen=True)
class Submission:
    """A request as the runner passes it to an engine.

    Attributes:
        request: what the caller wants.
        forced: tokens to feed instead of the engine's choice, or ``None``.
        prefix: the result of ``extract`` for the request to continue, or ``None``.
        hints: what drafts must contain to be right or wrong, or ``None``.
    """

    request: Request
    forced: tuple[int, ...] | None = None
    prefix: Any = None
    hints: Hints | None = None


class Engine(ABC):
    """A batched decoder, made for one model and one run.

    Class attributes:
        name: the engine's name on the command line and in case ids.
        library: the library plugin whose models it decodes.
        capabilities: what it can do.
        opinion: whether it is right by construction and runs the cases where another engine fails.
        drafters: the kinds of drafters that it provides for every family.
        prefix_reuse: its rules for reusing prefixes; what they exclude is not required.
        own_processes: it loads the model in its own processes, and is made with an ``Origin``.
        packages: further distributions, besides the library, whose versions its results record.
        elsewhere: a process that this one did not start answers, and may be replaced between runs.
        slots: its fixed number of slots, if it has no queue of its own: it never gets more requests
            at a time, as the runner holds the others back. ``rows`` gives a request's slot, which
            it keeps to its end. 0: it takes any number.
    """

    name: ClassVar[str]
    library: ClassVar[str]
    capabilities: ClassVar[frozenset[Capability]]
    opinion: ClassVar[bool] = False
    drafters: ClassVar[tuple[str, ...]] = ()
    prefix_reuse: ClassVar[PrefixReuse] = PrefixReuse()
    own_processes: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ()
    elsewhere: ClassVar[bool] = False
    slots: ClassVar[int] = 0

    def __init_subclass__(cls, **more: Any) -> None:
        """Refuse a class that has something else where this class has a method."""
        super().__init_subclass__(**more)
        for name, value in vars(cls).items():
            if name in _METHODS and not (callable(value) or isinstance(value, _CALLED)):
                raise TypeError(_hidden(cls.__qualname__, name))

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse an attribute with the name of a method that the runner calls."""
        if name in _METHODS and not callable(value):
            raise TypeError(_hidden(type(self).__qualname__, name))
        super().__setattr__(name, value)

    @abstractmethod
    def __init__(self, model: Any, options: EngineOptions) -> None:
        """Make the engine for ``model`` as its library plugin loaded it.

        With the capability ``SERVED`` or with its own processes, the engine gets an ``Origin``
        instead, and loads the model elsewhere.
        """

    @abstractmethod
    def insert(self, submissions: Sequence[Submission]) -> None:
        """Insert requests, all in one call of the engine."""

    @abstractmethod
    def step(self) -> StepOutput:
        """Do one unit of work and return its output."""

    @abstractmethod
    def remove(self, request_ids: Sequence[str]) -> None:
        """Cancel requests at any stage, all in one call of the engine."""

    @abstractmethod
    def close(self) -> None:
        """Free everything. Called once, also after a failure."""

    @classmethod
    def not_offered(cls) -> frozenset[Capability]:
        """What the server at a URL lacks, as its user says: cases that need it are not run."""
        return frozenset()

    @classmethod
    def check(
        cls,
        model: Any,  # noqa: ARG003
        schedule: Schedule,  # noqa: ARG003
        alone: Mapping[str, tuple[int, ...]],  # noqa: ARG003
    ) -> None:
        """Refuse a schedule that cannot be played as it is.

        Args:
            alone: the tokens of each request alone.

        Raises:
            Unsupported: the library itself refuses such requests of this model.
            NotOffered: the schedule's moments never come.
        """
        return

    @classmethod
    def apart(cls, model: Any) -> str:  # noqa: ARG003
        """Why rows of unequal length can't share a pass of ``model``; empty if they can."""
        return ""

    @classmethod
    def uncut(cls, model: Any) -> str:  # noqa: ARG003
        """Why prompts of ``model`` are never prefilled in pieces; empty if they are."""
        return ""

    @classmethod
    def in_turn(cls, model: Any, options: EngineOptions) -> str:  # noqa: ARG003
        """Why requests with these options to ``model`` wait for each other; empty if they don't."""
        return ""

    @classmethod
    def variant(cls, family: Family) -> Family:
        """The family as this engine runs it; a changed family has its own name."""
        return family

    @classmethod
    def repro_calls(cls) -> ReproCalls | None:
        """The calls with which a script of ``conformance repro`` drives it; ``None``: no script."""
        return None

    def stages(self) -> Mapping[str, Stage]:
        """The stages of requests that have not ended; an omitted request has an unknown stage."""
        return {}

    def rows(self) -> Mapping[str, int]:
        """The current row on the batch axis of each decoding request, where known."""
        return {}

    def cache_bytes(self) -> int | None:
        """Bytes of live caches, or ``None`` if unknown."""
        return None

    def pending(self) -> int | None:
        """Edges of the graph that live caches depend on, or ``None`` if they are not counted."""
        return None

    def give_up(self, request_id: str, *, computed: bool) -> KeptCache | None:  # noqa: ARG002
        """Free all caches of finished requests, this request's last; return the memory it freed.

        With ``computed`` it is evaluated first. ``None`` without the capability ``WEIGHED``.
        """
        return None

    def give_up_stored(self) -> KeptCache | None:
        """Free the caches of finished requests and the shortest stored sequence; weigh the latter.

        The sequence is evaluated first. ``None`` without the capabilities ``WEIGHED`` and
        ``STORED``.
        """
        return None

    def left_behind(self) -> Mapping[str, int] | None:
        """Counts of what is alive in the engine's own process, by kind; ``None`` if it has none."""
        return None

    def counted(self) -> Counted | None:
        """The engine's own statistics of the whole run; ``None`` if it keeps none."""
        return None

    def layers(self) -> Sequence[CachedLayer]:
        """The caches of the decoding rows, by layer; empty if unknown."""
        return ()

    def extract(self, request_id: str) -> Any:
        """The cache of a live or just finished request, for a later ``Submission.prefix``.

        Raises:
            Unsupported: the engine lacks the capability ``PREFIX``.
        """
        raise Unsupported(f"engine {self.name} cannot extract the cache of {request_id!r}")

    def reloaded(self, prefix: Any) -> Any:  # noqa: ARG002
        """The result of ``extract``, written to a file and loaded by the library's functions.

        Raises:
            Unsupported: the engine lacks the capability ``SAVED``.
        """
        raise Unsupported(f"engine {self.name} cannot save caches")

    def probe(self, kind: str) -> ProbeResult:
        """Make an invalid call of this kind and report the result.

        Raises:
            Unsupported: the engine lacks the capability ``PROBES``.
        """
        raise Unsupported(f"engine {self.name} has no probe {kind!r}")

    @classmethod
    def alone(
        cls,
        model: Any,  # noqa: ARG003
        request: Request,  # noqa: ARG003
        options: EngineOptions,  # noqa: ARG003
    ) -> tuple[int, ...] | None:
        """The engine's own tokens for a request that is decoded alone.

        They are the right tokens if only the engine has the request's sampler; otherwise ``None``.
        """
        return None

    @classmethod
    def joined(
        cls,
        model: Any,  # noqa: ARG003
        requests: Sequence[Request],  # noqa: ARG003
    ) -> Sequence[tuple[tuple[str, ...], Mapping[str, Any]]]:
        """The processor's output for requests that the engine passes to it in one call.

        For each call: the requests' ids, row by row, and NumPy arrays by name, including
        ``input_ids`` and ``attention_mask``. Empty for an engine that passes each request
        separately.
        """
        return ()

    @classmethod
    def probes(cls) -> tuple[str, ...]:
        """The kinds of invalid calls that ``probe`` can make."""
        return ()

    @classmethod
    def accepted(cls) -> Accepted:
        """The fields that the installed release accepts; empty if the adapter does not say.

        The end of each run asks for them, so they are read without importing more of the library.
        """
        return {}

    @classmethod
    def injected(cls, change: Injection) -> Injection:
        """How a change of the library, such as a mend, takes effect where the engine decodes."""
        return change

    @classmethod
    def passed(cls, model: Any, schedule: Schedule) -> Sequence[Passed]:  # noqa: ARG003
        """What the adapter passes to the library for a schedule; nothing is decoded."""
        return ()


_CALLED = (classmethod, staticmethod)
_METHODS = frozenset(
    name
    for name, value in vars(Engine).items()
    if not name.startswith("_") and (callable(value) or isinstance(value, _CALLED))
)


def _hidden(engine: str, name: str) -> str:
    return (
        f"{engine}.{name} hides the method {name}() of Engine, which is called during a run; give "
        "the attribute another name"
    )


def equipped(family: Family, engine: type[Engine]) -> Family:
    """``family`` with its own drafters and those that ``engine`` provides."""
    own: dict[str, dict[str, Any]] = {kind: {} for kind in engine.drafters}
    facts = msgspec.structs.replace(family.facts, drafters=own | family.facts.drafters)
    return msgspec.structs.replace(family, facts=facts)


@dataclass(frozen=True)
class ReproCalls:
    """Lines of Python from which a script of ``conformance repro`` is made.

    ::

        ReproCalls(
            imports=("from my_engine import Scheduler",),
            construct="Scheduler(model)",
            insert="engine.submit(names, prompts, counts)",
            step="((r.id, r.token, r.logprobs) for r in engine.step())",
            remove="engine.cancel(names)",
        )

    Attributes:
        imports: imports of the engine's package.
        construct: an expression: the engine of ``model``, as mlx-lm makes it. It may name
            ``options``, the options that differ from their defaults, as keyword arguments.
        insert: a statement: ``engine`` gets the requests ``names``, with lists of token ids
            ``prompts`` and numbers of output tokens ``counts``, all in one call.
        step: an expression: one step of ``engine``; the name, token and logprobs of each new token.
            Without logprobs, the third is ``None``.
        remove: a statement: the requests ``names`` are cancelled; empty for an engine that can't.
        logprobs: whether ``step`` gives logprobs.
    """

    imports: tuple[str, ...]
    construct: str
    insert: str
    step: str
    remove: str = ""
    logprobs: bool = True
