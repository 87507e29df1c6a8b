"""Engines that split an mlx-lm model over processes, with a ``BatchGenerator`` in each."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from conformance.core.counted import Counted
from conformance.core.engine import Capability, Engine, Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.failures import FailedElsewhere
from conformance.core.family import Family
from conformance.core.faults.active import active
from conformance.core.first_signals import at_exit
from conformance.core.origin import Origin
from conformance.core.schedule import Stage
from conformance.core.trace import CachedLayer, Claim, ProbeResult, StepOutput
from conformance.plugins.distributed.group import Group
from conformance.plugins.distributed.messages import PIPELINE, TENSOR, Call, Reply, State, write
from conformance.plugins.mlx_lm.engine import MlxLmEngine


class SplitEngine(Engine):
    """One model split over processes: each of them gets all requests and draws all tokens.

    Reports come from rank 0, except the bytes of caches, which are summed over all ranks. Each
    step claims that all ranks drew the same tokens.
    """

    library: ClassVar[str] = "mlx_lm"
    own_processes: ClassVar[bool] = True
    # The thread that drives a generator is of its own process there; so is the memory that is
    # weighed.
    capabilities: ClassVar[frozenset[Capability]] = MlxLmEngine.capabilities - {
        Capability.SAVED,
        Capability.THREADS,
        Capability.WEIGHED,
    }
    size: ClassVar[int]
    how: ClassVar[str]

    def __init__(self, model: Any, options: EngineOptions) -> None:
        origin: Origin = model
        if origin.family.checkpoint is not None:
            raise Unsupported("the plugin of split models does not support real checkpoints")
        self._meter = origin.meter
        self._state = State()
        self._injected = tuple(active())
        self._hits = [0] * len(self._injected)
        self._group = groups().get(self.size, self.how)
        key = (origin.family, origin.dtype, origin.seed)
        if self._group.loaded != key:
            folder = self._group.folder / "model"
            folder.mkdir(exist_ok=True)
            write(origin, folder)
            trusted = origin.family.facts.model_file is not None
            self._call("load", str(folder), trusted=trusted)
            self._group.loaded = key
        self._call("make", options, tuple(place for place, _ in self._injected))

    def insert(self, submissions: Sequence[Submission]) -> None:
        """See ``MlxLmEngine.insert``; a prefix is a number, and stays in the processes."""
        plain = [Submission(s.request, s.forced, None, s.hints) for s in submissions]
        self._call("insert", plain, [s.prefix for s in submissions])

    def step(self) -> StepOutput:
        """Step all ranks: rank 0's output, with the claim that all ranks gave the same tokens."""
        replies = self._call("ask", "step")
        first: StepOutput = replies[0].value
        claims = first.claims
        for rank, reply in enumerate(replies[1:], 1):
            said, found = _tokens(reply.value), _tokens(first)
            claims += (Claim(f"tokens of rank {rank}", said, found, said == found),)
        return StepOutput(
            first.events,
            first.processed,
            first.reused,
            first.drafted,
            first.proposed,
            first.stored,
            claims,
            first.pooled,
        )

    def remove(self, request_ids: Sequence[str]) -> None:
        """See ``MlxLmEngine.remove``."""
        self._call("ask", "remove", list(request_ids))

    def close(self) -> None:
        """End the engines; keep the processes if no message is left between them."""
        if self._group.loaded is not None and not all(r.value for r in self._call("close")):
            groups().discard()

    def stages(self) -> Mapping[str, Stage]:
        """See ``MlxLmEngine.stages``."""
        return self._state.stages

    def rows(self) -> Mapping[str, int]:
        """See ``MlxLmEngine.rows``."""
        return self._state.rows

    def cache_bytes(self) -> int | None:
        """The bytes of all ranks' caches."""
        return self._state.cache_bytes

    def counted(self) -> Counted | None:
        """See ``MlxLmEngine.counted``."""
        found: Counted | None = self._call("ask", "counted")[0].value
        return found

    def layers(self) -> Sequence[CachedLayer]:
        """The layers of rank 0."""
        return self._state.layers

    def extract(self, request_id: str) -> Any:
        """The number under which each rank keeps its part of the cache."""
        return self._call("extract", request_id)[0].value

    def probe(self, kind: str) -> ProbeResult:
        """See ``MlxLmEngine.probe``."""
        found: ProbeResult = self._call("ask", "probe", kind)[0].value
        return found

    @classmethod
    def probes(cls) -> tuple[str, ...]:
        """See ``MlxLmEngine.probes``."""
        return MlxLmEngine.probes()

    def _call(self, name: str, *args: Any, **options: Any) -> tuple[Reply, ...]:
        """The replies of all ranks; after a failure the next engine gets a new group."""
        try:
            replies = self._group.call(Call(name, args, options))
            for reply in replies:
                if reply.failure is not None:
                    raise FailedElsewhere(reply.failure)
        except BaseException:
            groups().discard()
            raise
        first = replies[0]
        self._meter.extend(first.forwards)
        held = [r.state.cache_bytes for r in replies if r.state.cache_bytes is not None]
        state = first.state
        self._state = State(state.stages, state.rows, sum(held) if held else None, state.layers)
        for index, (_, hits) in enumerate(self._injected):
            now = max((r.hits[index] for r in replies if r.hits), default=self._hits[index])
            hits.count += now - self._hits[index]
            self._hits[index] = now
        return replies


def _tokens(output: StepOutput) -> str:
    return ", ".join(f"{e.request_id} {e.token}" for e in output.events)


class _Groups:
    """The group of this process: one at a time, ended with the process."""

    def __init__(self) -> None:
        self._group: Group | None = None
        self._process = os.getpid()
        at_exit(self.discard)

    def get(self, size: int, how: str) -> Group:
        """The group of this size that splits models in this way."""
        found = self._own()
        if found is None or (found.size, found.how) != (size, how):
            self.discard()
            self._group = found = Group(size, how)
        return found

    def discard(self) -> None:
        """End the group."""
        found, self._group = self._own(), None
        if found is not None:
            found.loaded = None
            found.close()

    def _own(self) -> Group | None:
        """This process's group: a forked process starts with none and leaves its parent's alone."""
        if self._process != os.getpid():
            self._group, self._process = None, os.getpid()
        return self._group


@functools.cache
def groups() -> _Groups:
    """The group of this process."""
    return _Groups()


class TensorParallel(SplitEngine):
    """Each layer split over two processes: ``model.shard``."""

    name: ClassVar[str] = "mlx_lm_tensor_parallel"
    size, how = 2, TENSOR


class TensorParallel3(TensorParallel):
    """The same over three processes."""

    name: ClassVar[str] = "mlx_lm_tensor_parallel_3"
    size = 3

    @classmethod
    def variant(cls, family: Family) -> Family:
        """The family with heads and widths that are divisible by three."""
        return in_thirds(family, cls.how)


class Pipeline(SplitEngine):
    """The layers divided over two processes: ``model.model.pipeline``."""

    name: ClassVar[str] = "mlx_lm_pipeline"
    size, how = 2, PIPELINE


class Pipeline3(Pipeline):
    """The same over three processes."""

    name: ClassVar[str] = "mlx_lm_pipeline_3"
    size = 3

    @classmethod
    def variant(cls, family: Family) -> Family:
        """The family with a number of layers that is divisible by three."""
        return in_thirds(family, cls.how)


ENGINES = (TensorParallel, TensorParallel3, Pipeline, Pipeline3)


# Families whose heads, widths and layers divide by three, for groups of three processes: tiny
# families have four heads, two of them for keys, and about two layers, enough for two processes.
_NAME = "{}-{}-thirds"  # configs differ by way, and results are kept by the family's name
# The sizes that `shard` divides by the number of processes: each becomes half as large again.
_DIVIDED = frozenset(
    {
        "num_attention_heads",
        "num_key_value_heads",
        "num_attention_groups",
        "num_heads",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "sparse_num_index_heads",
        "o_groups",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
        "shared_intermediate_size",
        "share_expert_dim",
        "expert_ffn_hidden_size",
    }
)
# The experts' width has a different name in these models.
_MORE = {"minimax": {"intermediate_size"}, "minimax_m3_vl": {"intermediate_size"}}
# One head of keys, of which each process gets a copy.
_FIELDS: dict[str, dict[str, Any]] = {"qwen3_5_moe": {"num_key_value_heads": 1}}
_LAYERS = {"bailing_hybrid": 9, "qwen2": 3}


def in_thirds(family: Family, how: str) -> Family:
    """The family for a group of three processes; unchanged if it is divisible as it is."""
    if how == PIPELINE:
        layers = _LAYERS.get(family.module)
        config = family.config | ({"num_hidden_layers": layers} if layers else {})
    else:
        divided = _DIVIDED | _MORE.get(family.module, set())
        config = _widened(family.config, divided, _FIELDS.get(family.module, {}))
    if config == family.config:
        return family
    return msgspec.structs.replace(family, name=_NAME.format(family.name, how), config=config)


def _widened(config: dict[str, Any], divided: frozenset[str], fields: dict[str, Any]) -> Any:
    found = {
        key: _widened(value, divided, fields)
        if isinstance(value, dict)
        else value * 3 // 2
        if key in divided and isinstance(value, int)
        else value
        for key, value in config.items()
    }
    if "num_attention_heads" in config and not config.keys() & {"head_dim", "v_head_dim"}:
        found["hidden_size"] = config["hidden_size"] * 3 // 2
    return found | {key: value for key, value in fields.items() if key in config}
