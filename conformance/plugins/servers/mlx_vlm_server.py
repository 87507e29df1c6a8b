"""``mlx_vlm.server`` as an engine."""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from mlx_vlm.tokenizer_utils import load_tokenizer, make_streaming_detokenizer

from conformance.core.accepted_fields import COMMAND_LINE, Accepted, options_in, source_tree
from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.family import Processor
from conformance.core.origin import Origin, Other
from conformance.core.schedule import Budget, Request, Schedule
from conformance.core.trace import Claim
from conformance.plugins.servers.answers import Answer
from conformance.plugins.servers.asking import Question, Tokens
from conformance.plugins.servers.claims import about_prompt, about_stored
from conformance.plugins.servers.endpoints import MessagesReader, ResponsesReader
from conformance.plugins.servers.fields import sampled
from conformance.plugins.servers.managed import ManagedEngine
from conformance.plugins.servers.other_models import another
from conformance.plugins.servers.served_engine import SERVED
from conformance.plugins.servers.spelling import Spelling
from conformance.plugins.servers.words import end_nowhere, tokens_of

_NOT_SAMPLED = {"do_sample": False, "temperature": 4.0}
_COUNTING = {"messages": "messages/count_tokens", "responses": "responses/input_tokens"}


class MlxVlmServer(ManagedEngine):
    """``python -m mlx_vlm.server``. Tokens come from the logprobs; there are only chats."""

    name: ClassVar[str] = "mlx_vlm_server"
    library: ClassVar[str] = "mlx_vlm"
    capabilities: ClassVar[frozenset[Capability]] = SERVED | {
        Capability.ADAPTERS,
        Capability.BUDGETS,
        Capability.CANCEL,
        Capability.CHUNKED,
        Capability.COUNTED,
        Capability.ENDPOINTS,
        Capability.MARKERS,
        Capability.MEDIA,
        Capability.MESSAGES,
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
        Capability.TENANTS,
    }

    request_model: ClassVar[str] = "ChatRequest"
    endpoint_models: ClassVar[Mapping[str, str]] = {
        "messages": "AnthropicRequest",
        "responses": "OpenAIRequest",
    }
    counting: ClassVar[str] = "conformance.plugins.servers.planting:of_mlx_vlm"
    most_top: ClassVar[int] = 5
    progress: ClassVar[re.Pattern[str]] = re.compile(r"Prefill progress: .* tokens=(\d+)/(\d+)")
    imported: ClassVar[tuple[str, ...]] = (
        "mlx_vlm.server",
        "transformers.models.auto.tokenization_auto",
        "uvicorn",
        "conformance.plugins.servers.planting",
    )

    @classmethod
    def module(cls) -> str:
        """See ``ManagedEngine.module``."""
        return "mlx_vlm.server"

    @classmethod
    def accepted(cls) -> Accepted:
        """See ``Engine.accepted``: the fields of the models of all requests."""
        server = cls.module()
        modules = [m for n, m in sys.modules.items() if f"{n}.".startswith(f"{server}.")]
        models = {
            value
            for module in modules
            for name, value in vars(module).items()
            if name.endswith("Request") and hasattr(value, "model_fields")
        }
        ordered = sorted(models, key=lambda model: model.__name__)
        options = (options_in(source_tree(name)) for name in (server, f"{server}.cli"))
        return {
            **{model.__name__: tuple(model.model_fields) for model in ordered},
            COMMAND_LINE: tuple(itertools.chain.from_iterable(options)),
        }

    def flags(self) -> Sequence[str]:
        """Options for sizes, logprobs and quantized caches."""
        options, kv = self._options, self._options.kv
        quantized: tuple[str, ...] = ()
        if kv is not None:
            quantized = (
                *("--kv-bits", str(kv.bits)),
                *("--kv-group-size", str(kv.group_size)),
                *("--kv-quant-scheme", kv.scheme),
            )
        return (
            *("--prefill-step-size", str(options.prefill_step_size)),
            *("--max-num-seqs", str(options.completion_batch_size)),
            *("--top-logprobs-k", str(self.most_top)),
            *(("--max-tokens", str(options.max_tokens)) if options.max_tokens else ()),
            *(("--max-kv-size", str(options.max_kv_size)) if options.max_kv_size else ()),
            *quantized,
        )

    @classmethod
    def of_family(cls, origin: Origin, family: str) -> Other:
        """See ``ManagedEngine.of_family``."""
        from conformance.plugins.mlx_vlm.library import MlxVlm  # noqa: PLC0415
        from conformance.plugins.mlx_vlm.plugin import FAMILIES  # noqa: PLC0415

        return another(MlxVlm(), FAMILIES, family, origin)

    @classmethod
    def alone(cls, model: Any, request: Request, options: EngineOptions) -> tuple[int, ...] | None:
        """See ``Engine.alone``; for an adapter, the library's single stream with it."""
        if request.asked is not None and request.asked.adapter:
            from conformance.plugins.servers.vlm_adapters import (  # noqa: PLC0415
                adapted_stream,
            )

            return adapted_stream(model, request, options)
        return super().alone(model, request, options)

    def added(self, folder: Path) -> Mapping[str, Path]:
        """The adapter that the server starts with."""
        number = self._options.adapter
        return {"--adapter-path": folder / f"adapter{number}"} if number else {}

    def add(self, folder: Path) -> None:
        """See ``ManagedEngine.add``."""
        if number := self._options.adapter:
            self._adapter(folder, number)

    def _adapter(self, folder: Path, number: int) -> Path:
        """The folder of an adapter, which is written when it is first asked for."""
        from conformance.plugins.servers.vlm_adapters import write_adapter  # noqa: PLC0415

        place = folder / f"adapter{number}"
        if not place.exists():
            write_adapter(folder, place, self._origin.seed + number)
        return place

    def environment(self) -> dict[str, str]:
        """The variables that switch prefix caching on, if the options ask for it."""
        caching = self._options.prefix_caching
        if caching is None:
            return {"APC_ENABLED": "0"}
        return {
            "APC_ENABLED": "1",
            "APC_DISK_ENABLED": "0",
            # Otherwise it keeps nothing if less than 1 GB of memory is free.
            "APC_MEMORY_RESERVE_GB": "0",
            "APC_BLOCK_SIZE": str(caching.block_size),
            "APC_NUM_BLOCKS": str(caching.blocks),
            # The default is two, and only for prompts longer than any here.
            "APC_CHECKPOINT_ENTRIES": str(caching.snapshots),
            "APC_CHECKPOINT_INTERVAL_TOKENS": str(caching.interval),
        }

    @classmethod
    def check(
        cls,
        model: Any,
        schedule: Schedule,
        alone: Mapping[str, tuple[int, ...]],  # noqa: ARG003
    ) -> None:
        """See ``Engine.check``: a chat's prompt is the text of its message, with its images."""
        from conformance.plugins.mlx_vlm.inputs import unlike_chat  # noqa: PLC0415 - slow

        most = max((len(request.media) for request in schedule.requests), default=0)
        if why := unlike_chat(model, images=most):
            raise Unsupported(why)

    def dress(self, folder: Path) -> None:
        """Add the family's tokenizer and chat template, and how its answers are sampled."""
        end_nowhere(folder, self._origin.family.vocab_size)
        if (sampler := self._options.sampler) is not None:
            # A checkpoint may have a temperature that it says not to use.
            own = sampled(sampler)
            generation = json.dumps(own if own["temperature"] else _NOT_SAMPLED)
            (folder / "generation_config.json").write_text(generation, encoding="utf-8")

    def question(self, request: Request, *, streamed: bool) -> Question:
        """See ``ManagedEngine.question``; images are in their places in the message."""
        asked = super().question(request, streamed=streamed)
        # Otherwise answers end at the config's number of positions, whatever the request asks for.
        asked.body["context_management"] = []
        number = request.asked.adapter if request.asked is not None else 0
        if number and number != self._options.adapter:
            self._changed = True  # later requests get it, too: server-adapter-of-another-client
            asked.body["adapter_path"] = str(self._adapter(self._server.folder, number))
        if request.budget is not None:
            asked.body.update(_thinking(request.budget, asked.endpoint))
        if request.media:
            content: list[dict[str, Any]] = []
            others = self._exchanged(request)
            prompt = [others.get(token, token) for token in request.prompt]
            end = 0
            for media in request.media:
                if media.kind != "image":
                    raise Unsupported(f"no {media.kind} is sent to a server")
                content += self._part(prompt[end : media.span[0]])
                content.append({"type": "image_url", "image_url": {"url": _data_url(media)}})
                end = media.span[1]
            content += self._part(prompt[end:])
            asked.body["input"] = [{"role": "user", "content": content}]
        return asked

    def _part(self, tokens: Sequence[int]) -> list[dict[str, Any]]:
        return [{"type": "text", "text": self.text(tokens)}] if tokens else []

    def look_after(self) -> Iterator[Claim]:
        """See ``ManagedEngine.look_after``; of other endpoints, their counts of prompts, too."""
        asked = list(self._answers)[self._looked_at :]
        yield from super().look_after()
        for request in map(self._requests.__getitem__, asked):
            sent = self.question(request, streamed=False)
            if (place := _COUNTING.get(sent.endpoint)) and not self._options.markers:
                yield about_prompt(self.url, place, sent, len(request.prompt))
        for name in asked:  # some of the counted prompts go on from one that is stored
            if self.ask(self._requests[name]).endpoint == ResponsesReader.path:
                yield from about_stored(self.url, self._answers[name])

    def spelling(self) -> Spelling:
        """See ``ManagedEngine.spelling``."""
        tokenizer = load_tokenizer(self._server.folder)
        return Spelling(tokenizer, make_streaming_detokenizer(tokenizer))

    def tokens(self, answer: Answer) -> Tokens:
        """The tokens of the logprobs, which come with each token; without them, the words."""
        if answer.bare:
            return [(token, None) for token in tokens_of(answer.text, self.special())]
        found = [(self.token_of(entry), entry.get("logprob")) for entry in answer.entries]
        # A text may lack special tokens, and no others: fewer entries than words are lost.
        lost = self.split(answer.text)[len(found) :] if answer.reason is not None else ()
        return [*found, *((token, None) for token in tokens_of(" ".join(lost), self.special()))]

    def special(self) -> Sequence[tuple[str, int]]:
        """See ``ManagedEngine.special``; the processor's, too."""
        made = self._origin.family.facts.processor or Processor()
        return [*made.tokenizer.special.items(), *super().special()]


def _thinking(budget: Budget, endpoint: str) -> dict[str, Any]:
    """The fields for a thinking budget; messages have them in a field of their own."""
    if endpoint == MessagesReader.path:
        return {"thinking": {"type": "enabled", "budget_tokens": budget.tokens}}
    return {"enable_thinking": True, "thinking_budget": budget.tokens}


def _data_url(media: Any) -> str:
    from conformance.plugins.mlx_vlm.media import draw  # noqa: PLC0415 - with it comes PIL

    file = io.BytesIO()
    draw(msgspec.structs.replace(media, span=(0, 0))).save(file, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
