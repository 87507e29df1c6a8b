"""``mlx_lm.server`` as an engine: in one process, and in two as ``mlx.launch`` starts them."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.tokenizer_utils import load

from conformance.core.accepted_fields import (
    COMMAND_LINE,
    Accepted,
    body_fields_in,
    options_in,
    source_tree,
)
from conformance.core.engine import Capability
from conformance.core.engine_options import TWIN, EngineOptions
from conformance.core.origin import Origin, Other
from conformance.core.schedule import Request
from conformance.plugins.distributed.messages import write_index
from conformance.plugins.servers.adapters import adapted_stream, write_adapter
from conformance.plugins.servers.asking import Question
from conformance.plugins.servers.managed import ManagedEngine
from conformance.plugins.servers.other_models import another, nbytes_of, quantized_stream
from conformance.plugins.servers.process import free_port
from conformance.plugins.servers.served_engine import SERVED
from conformance.plugins.servers.spelling import Spelling


class MlxLmServer(ManagedEngine):
    """``python -m mlx_lm.server``. A stream has no logprobs, so its words are the tokens."""

    name: ClassVar[str] = "mlx_lm_server"
    library: ClassVar[str] = "mlx_lm"
    completion_logprobs: ClassVar[int] = True  # it refuses numbers: server-completion-logprobs
    capabilities: ClassVar[frozenset[Capability]] = SERVED | {
        Capability.ADAPTERS,
        Capability.CANCEL,
        Capability.CHUNKED,
        Capability.COMPLETIONS,
        Capability.COUNTED,
        Capability.MARKERS,
        Capability.MODELS,
        Capability.PIECES,
        Capability.PREFIX_CACHING,
        Capability.PROBES,
        Capability.PROCESSORS,
        Capability.QUANTIZED,
        Capability.SAMPLERS,
        Capability.SCHEMAS,
        Capability.SLOTS,
        Capability.STOP,
    }

    limits_prompts: ClassVar[bool] = True
    drafts: ClassVar[int] = 2
    counting: ClassVar[str] = "conformance.plugins.servers.planting:of_mlx_lm"
    progress: ClassVar[re.Pattern[str]] = re.compile(r"Prompt processing progress: (\d+)/(\d+)")
    imported: ClassVar[tuple[str, ...]] = (
        "http.server",
        "mlx_lm.generate",
        "mlx_lm.processors",
        "mlx_lm.sample_utils",
        "mlx_lm.utils",
        "transformers.models.auto.tokenization_auto",
        "conformance.plugins.servers.planting",
    )

    @classmethod
    def module(cls) -> str:
        """See ``ManagedEngine.module``."""
        return "mlx_lm.server"

    @classmethod
    def accepted(cls) -> Accepted:
        """See ``Engine.accepted``: the server reads the fields of a body by hand."""
        tree = source_tree(cls.module())
        return {cls.request_model: body_fields_in(tree), COMMAND_LINE: options_in(tree)}

    def flags(self) -> Sequence[str]:
        """Options for sizes, kept prompts and quantized caches, and what requests leave out."""
        options, kv = self._options, self._options.kv
        caching = options.prefix_caching
        most = self.kept_bytes()
        sampler = options.sampler.args if options.sampler is not None else {}
        drafts = ("--num-draft-tokens", str(self.drafts)) if options.draft_model else ()
        own_code = self._origin.family.facts.model_file
        return (
            *(("--trust-remote-code",) if own_code else ()),
            # Beside it, a client's own argument writes a word.
            *("--chat-template-args", '{"writes_ending": true}'),
            *(text for name, value in sampler.items() for text in (_option(name), str(value))),
            *(("--max-tokens", str(options.max_tokens)) if options.max_tokens else ()),
            *drafts,
            *("--prefill-step-size", str(options.prefill_step_size)),
            *("--prompt-concurrency", str(options.prefill_batch_size)),
            *("--decode-concurrency", str(options.completion_batch_size)),
            *("--prompt-cache-size", str(caching.snapshots) if caching is not None else "0"),
            *(("--prompt-cache-bytes", str(most)) if most is not None else ()),
            *(("--kv-bits", str(kv.bits)) if kv is not None else ()),
            *(("--kv-group-size", str(kv.group_size)) if kv is not None else ()),
            # The default is 5,000, more than any request here has.
            *(("--quantized-kv-start", str(kv.start)) if kv is not None else ()),
        )

    def added(self, folder: Path) -> Mapping[str, Path]:
        """The adapter and the draft model that the server starts with."""
        found: dict[str, Path] = {}
        if number := self._options.adapter:
            found["--adapter-path"] = folder / f"adapter{number}"
        if (number := self._options.draft_model) and self._origin.other is not None:
            found["--draft-model"] = folder / f"drafts{number}"
        return found

    def add(self, folder: Path) -> None:
        """See ``ManagedEngine.add``."""
        added, options, seed = self.added(folder), self._options, self._origin.seed
        if adapter := added.get("--adapter-path"):
            write_adapter(folder, adapter, seed + options.adapter)
        if (drafts := added.get("--draft-model")) and self._origin.other is not None:
            drafts.mkdir()
            number = 0 if options.draft_model == TWIN else options.draft_model
            self._origin.other(seed + number).write(drafts)
            self.dress(drafts)

    def kept_bytes(self) -> int | None:
        """See ``ManagedEngine.kept_bytes``; as many as the caches of that number of tokens have."""
        caching = self._options.prefix_caching
        if caching is None or caching.tokens is None:
            return None
        return nbytes_of(self._origin, _STORAGE) * caching.tokens // _STORAGE

    @classmethod
    def in_turn(cls, model: Any, options: EngineOptions) -> str:
        """See ``Engine.in_turn``.

        Source: mlx_lm/server.py, ``ModelProvider._load`` and ``ResponseGenerator._is_batchable``.
        """
        origin: Origin = model
        if options.draft_model:
            return "the server answers requests one by one if it has a draft model"
        if options.kv is not None:
            return "the server answers requests one by one if keys and values are quantized"
        kinds = {type(cache) for cache in make_prompt_cache(origin.model)}
        alone = sorted(kind.__name__ for kind in kinds if not hasattr(kind, "merge"))
        return f"the server answers requests one by one for {', '.join(alone)}" if alone else ""

    @classmethod
    def of_family(cls, origin: Origin, family: str) -> Other:
        """See ``ManagedEngine.of_family``."""
        from conformance.plugins.mlx_lm.library import MlxLm  # noqa: PLC0415
        from conformance.plugins.mlx_lm.plugin import FAMILIES  # noqa: PLC0415

        return another(MlxLm(), FAMILIES, family, origin)

    @classmethod
    def alone(cls, model: Any, request: Request, options: EngineOptions) -> tuple[int, ...] | None:
        """See ``Engine.alone``; for an adapter or quantized caches, the library's own stream."""
        if request.asked is not None and request.asked.adapter:
            return adapted_stream(model, request, options)
        if options.kv is not None:
            return quantized_stream(model, request, options)
        return super().alone(model, request, options)

    def question(self, request: Request, *, streamed: bool) -> Question:
        """See ``ManagedEngine.question``; the adapter is written when it is first asked for."""
        question = super().question(request, streamed=streamed)
        number = request.asked.adapter if request.asked is not None else 0
        if number and number != self._options.adapter:
            folder = self._server.folder / f"adapter{number}"
            if not folder.exists():
                write_adapter(self._server.folder, folder, self._origin.seed + number)
            question.body["adapters"] = str(folder)
        return question

    def spelling(self) -> Spelling:
        """See ``ManagedEngine.spelling``."""
        tokenizer = load(self._server.folder)
        return Spelling(tokenizer, tokenizer.detokenizer)


def _option(name: str) -> str:
    """The option of the command line for an argument of a sampler."""
    return f"--{name.replace('_', '-')}"


# Tokens for which a cache has storage as soon as it has one.
_STORAGE = 256
_SIZE = "2"


class TensorParallelServer(MlxLmServer):
    """Each layer split over two processes, the server's default for a group."""

    name: ClassVar[str] = "mlx_lm_server_tensor_parallel"
    # The server refuses adapters in a group.
    capabilities: ClassVar[frozenset[Capability]] = MlxLmServer.capabilities - {Capability.ADAPTERS}
    imported: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def accepted(cls) -> Accepted:
        """See ``Engine.accepted``: nothing but what the server of one process accepts."""
        return {}

    def launcher(self) -> Sequence[str]:
        """A launcher with a ring on loopback; the first process has the server's address."""
        launch = str(Path(sys.executable).with_name("mlx.launch"))
        ring = ("--backend", "ring", "-n", _SIZE, "-p", str(free_port()))
        return (launch, *ring, "--")

    def dress(self, folder: Path) -> None:
        """Add the index of the checkpoint's files, which ``sharded_load`` reads."""
        super().dress(folder)
        write_index(folder)


class PipelineServer(TensorParallelServer):
    """The layers divided over two processes."""

    name: ClassVar[str] = "mlx_lm_server_pipeline"

    def flags(self) -> Sequence[str]:
        """See ``MlxLmServer.flags``."""
        return (*super().flags(), "--pipeline")
