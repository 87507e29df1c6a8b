"""The engine protocol: four methods and a declared set of capabilities.

An engine decodes many requests in one batch. An adapter makes a library's generator look like
this; the runner plays schedules on it and never looks behind it.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from conformance.core.counted import Counted
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.family import Family
from conformance.core.prefix_reuse import PrefixReuse
from conformance.core.repro_calls import ReproCalls
from conformance.core.schedule import Request, Stage
from conformance.core.trace import CachedLayer, KeptCache, ProbeResult, StepOutput


class Capability(enum.StrEnum):
    """What an engine can do. A scenario applies to engines that have all it needs."""

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
    DEFAULTS = "defaults"  # a sampler and logits processors for requests that bring none
    STOP = "stop"  # stop sequences for each request
    STOP_TOKENS = "stop_tokens"  # tokens that end any request, the same for all
    SEGMENTS = "segments"  # a prompt in given pieces
    PREFIX = "prefix"  # a request can continue from an extracted cache
    SAVED = "saved"  # an extracted cache can be written to a file and loaded
    MEDIA = "media"  # images, videos or sounds beside text
    QUANTIZED = "quantized"  # keys and values in fewer bits
    SPECULATIVE = "speculative"  # a drafter guesses tokens, the model verifies several at once
    PREFIX_CACHING = "prefix_caching"  # equal prefixes of prompts are computed once
    STORED = "stored"  # steps report the calls of the store of kept sequences
    POOLED = "pooled"  # steps report the calls of the pool of kept prefixes
    TENANTS = "tenants"  # requests of several tenants reuse nothing of each other
    WEIGHED = "weighed"  # pending() and give_up() report the memory of its caches
    PROBES = "probes"  # probe() makes invalid calls
    THREADS = "threads"  # may be driven from another thread than the loader's
    METERED = "metered"  # all of its work is calls of the model: what they cost is counted
    COUNTED = "counted"  # a server whose process notes the calls of its model, if asked
    COMPLETIONS = "completions"  # a server completes texts, beside chats
    SCHEMAS = "schemas"  # a server can be asked for JSON of a schema; it may refuse
    ADAPTERS = "adapters"  # a server puts adapters on its model on request
    MODELS = "models"  # a server loads other models on request
    MARKERS = "markers"  # a server takes reasoning and tool calls out of its answers' text
    SERVED = "served"  # it is a server, asked over HTTP; made with an Origin, not a model


@dataclass(frozen=True)
class Submission:
    """A request as the runner hands it to an engine.

    Attributes:
        request: what the caller wants.
        forced: tokens to feed instead of the engine's choice, or ``None``.
        prefix: the result of ``extract`` for the request that this one continues, or ``None``.
        hints: the oracle's tokens, for drafts that are to be right here and there; else ``None``.
    """

    request: Request
    forced: tuple[int, ...] | None = None
    prefix: Any = None
    hints: tuple[int, ...] | None = None


class Engine(ABC):
    """A batched decoder, made for one model and one run.

    Class attributes:
        name: how the command line and case ids call it.
        library: the library plugin whose models it decodes.
        capabilities: what it can do.
        opinion: whether it is right by construction, and is run where another engine fails.
        drafters: the kinds of drafters that it brings itself, for every family.
        prefix_reuse: rules by which it reuses prefixes; what they exclude is not required.
        own_processes: it loads the model in processes of its own, and is made with an ``Origin``.
        packages: distributions beside the library whose versions belong to its results.
        elsewhere: what answers was not started by this process, and may be another one next time.
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

    @abstractmethod
    def __init__(self, model: Any, options: EngineOptions) -> None:
        """Make the engine for ``model``, as its library plugin loaded it.

        One with the capability ``SERVED``, or with processes of its own, gets an ``Origin``, to
        load the model elsewhere.
        """

    @abstractmethod
    def insert(self, submissions: Sequence[Submission]) -> None:
        """Insert requests, all in one call of the engine."""

    @abstractmethod
    def step(self) -> StepOutput:
        """Do one unit of work and return its output."""

    @abstractmethod
    def remove(self, request_ids: Sequence[str]) -> None:
        """Cancel requests, in whatever stage they are, all in one call of the engine."""

    @abstractmethod
    def close(self) -> None:
        """Free everything. Called once, also after a failure."""

    @classmethod
    def apart(cls, model: Any) -> str:  # noqa: ARG003
        """Why rows of unequal length can't share a pass of ``model``; empty where they can."""
        return ""

    @classmethod
    def uncut(cls, model: Any) -> str:  # noqa: ARG003
        """Why prompts of ``model`` are never prefilled in pieces; empty where they are."""
        return ""

    @classmethod
    def variant(cls, family: Family) -> Family:
        """The family as this engine plays it, under a name of its own where it is another one."""
        return family

    @classmethod
    def repro_calls(cls) -> ReproCalls | None:
        """The calls by which a script of ``conformance repro`` drives it; ``None``: no script."""
        return None

    def stages(self) -> Mapping[str, Stage]:
        """Where the requests that have not ended are; those it does not name are unknown."""
        return {}

    def rows(self) -> Mapping[str, int]:
        """The current row on the batch axis of each decoding request, where known."""
        return {}

    def cache_bytes(self) -> int | None:
        """Bytes of live caches, or ``None`` if they are not known."""
        return None

    def pending(self) -> int | None:
        """Edges of the graph that live caches depend on, or ``None`` if they are not counted."""
        return None

    def give_up(self, request_id: str, *, computed: bool) -> KeptCache | None:  # noqa: ARG002
        """Free all caches of finished requests, that one's last, and report the memory it freed.

        With ``computed`` it is computed first. ``None`` without the capability ``WEIGHED``.
        """
        return None

    def give_up_stored(self) -> KeptCache | None:
        """Free the caches of finished requests and of the shortest stored sequence; weigh the last.

        It is computed first. ``None`` without the capabilities ``WEIGHED`` and ``STORED``.
        """
        return None

    def counted(self) -> Counted | None:
        """Its own statistics of all that it did; ``None`` if it keeps none."""
        return None

    def layers(self) -> Sequence[CachedLayer]:
        """The caches of the rows that decode, by layer; empty if they are not known."""
        return ()

    def extract(self, request_id: str) -> Any:
        """The cache of a live or just finished request, as a later ``Submission.prefix``.

        Raises:
            Unsupported: the engine has not the capability ``PREFIX``.
        """
        raise Unsupported(f"engine {self.name} cannot extract the cache of {request_id!r}")

    def reloaded(self, prefix: Any) -> Any:  # noqa: ARG002
        """The result of an ``extract``, written to a file and loaded by the library's functions.

        Raises:
            Unsupported: the engine has not the capability ``SAVED``.
        """
        raise Unsupported(f"engine {self.name} cannot save caches")

    def probe(self, kind: str) -> ProbeResult:
        """Make an invalid call of that kind and report the result.

        Raises:
            Unsupported: the engine has not the capability ``PROBES``.
        """
        raise Unsupported(f"engine {self.name} has no probe {kind!r}")

    @classmethod
    def alone(
        cls,
        model: Any,  # noqa: ARG003
        request: Request,  # noqa: ARG003
        options: EngineOptions,  # noqa: ARG003
    ) -> tuple[int, ...] | None:
        """The tokens that the engine gives if the request is all that it is asked.

        The right ones of a request whose sampler no library has but the engine; else ``None``.
        """
        return None

    @classmethod
    def joined(
        cls,
        model: Any,  # noqa: ARG003
        requests: Sequence[Request],  # noqa: ARG003
    ) -> Sequence[tuple[tuple[str, ...], Mapping[str, Any]]]:
        """The processor's output for requests that the engine passes to it in one call.

        For each call the requests' ids, row by row, and NumPy arrays by their names, ``input_ids``
        and ``attention_mask`` among them; empty for an engine that passes each request by itself.
        """
        return ()

    @classmethod
    def probes(cls) -> tuple[str, ...]:
        """The kinds of invalid calls that ``probe`` can make."""
        return ()


def equipped(family: Family, engine: type[Engine]) -> Family:
    """``family`` with the drafters that ``engine`` brings beside those of its own."""
    own: dict[str, dict[str, Any]] = {kind: {} for kind in engine.drafters}
    facts = msgspec.structs.replace(family.facts, drafters=own | family.facts.drafters)
    return msgspec.structs.replace(family, facts=facts)
