"""mlx-vlm's public function ``batch_generate`` as an engine: one call for all requests.

The function pads all prompts, embeds them in one call and cuts the padding off again: a different
path than the server's, with defects of its own. The first prompts get one image each, grouped by
size.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import mlx.core as mx
import numpy as np
from mlx_vlm.prompt_utils import apply_chat_template
from mlx_vlm.utils import prepare_inputs

from conformance.backend.sampling import SamplerFn
from conformance.core.accepted_fields import Accepted, Passed, Recorder, parameters_of
from conformance.core.counted import Counted
from conformance.core.engine import Capability, Engine, Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.schedule import Request, Schedule, Stage
from conformance.core.trace import FinishReason, StepOutput, TokenEvent
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.counting import counted
from conformance.plugins.mlx_vlm.inputs import in_numpy
from conformance.plugins.mlx_vlm.media import draw
from conformance.plugins.mlx_vlm.model import LoadedModel
from conformance.plugins.mlx_vlm.processor_files import text_of
from conformance.plugins.mlx_vlm.sampling import make_processors, make_sampler
from conformance.plugins.recorded_calls import called, record

_PLACE = "batch_generate"


class MlxVlmBatchGenerate(Engine):
    """One call of the function is one step. This engine's sampler records its rows."""

    name: ClassVar[str] = "mlx_vlm_batch_generate"
    library: ClassVar[str] = "mlx_vlm"
    capabilities: ClassVar[frozenset[Capability]] = frozenset(
        {
            Capability.FORCED,
            Capability.LOGPROBS,
            Capability.TOGETHER,
            Capability.CHUNKED,
            Capability.THREADS,
            Capability.MEDIA,
            Capability.DEFAULTS,
            Capability.METERED,
        }
    )

    def __init__(self, model: LoadedModel, options: EngineOptions) -> None:
        self._loaded = model.fresh()
        self._options = options
        self._queued: list[Submission] = []
        self._counted: Counted | None = None

    @classmethod
    def uncut(cls, model: LoadedModel) -> str:
        """See ``Engine.uncut``: the function asks the model, unlike the server's generator."""
        forbids = getattr(model.model, "no_chunked_prefill", False)
        return "the model says no_chunked_prefill" if forbids else ""

    def insert(self, submissions: Sequence[Submission]) -> None:
        """Queue the requests until the next step."""
        self._queued.extend(submissions)

    def step(self) -> StepOutput:
        """Call ``batch_generate`` once with all queued requests, images first."""
        submissions, self._queued = self._queued, []
        if not submissions:
            return StepOutput()
        submissions = sorted(submissions, key=lambda s: not s.request.media)
        requests = [s.request for s in submissions]
        prompts = [_text(request) for request in requests]
        for request, prompt in zip(requests, prompts, strict=True):
            self._check(request, prompt)
        rows = [_Row(s.request, s.forced) for s in submissions]
        recorder = _Recorder(
            _groups(rows, sort=compat.unpads_together()),
            make_sampler(self._options.sampler) or _greedy,
        )
        processors = make_processors(self._options.processors)
        images = [draw(media) for r in requests for media in r.media]
        stopping = _tokenizer(self._loaded.processor).stopping_criteria
        # Not `reset`, which falls back to the tokenizer's own stop tokens.
        stopping.eos_token_ids = []
        start = time.perf_counter()
        output: Any = compat.generation().batch_generate(
            self._loaded.model,
            self._loaded.processor,
            images=images or None,
            prompts=prompts,
            max_tokens=[r.max_tokens for r in requests],
            prefill_step_size=self._options.prefill_step_size,
            sampler=recorder,
            **({"logits_processors": processors} if processors else {}),
        )
        self._counted = counted(output.stats, time.perf_counter() - start)
        events = [
            event
            for row, text in zip(rows, output.texts, strict=True)
            for event in _events(row, self._tokens(row, text))
        ]
        return StepOutput(tuple(events), {r.request_id: len(r.prompt) for r in requests})

    def remove(self, request_ids: Sequence[str]) -> None:
        """Remove queued requests; the function cannot be interrupted once it is called."""
        self._queued = [s for s in self._queued if s.request.request_id not in request_ids]

    def close(self) -> None:
        """Do nothing: the function leaves nothing open."""

    def counted(self) -> Counted | None:
        """The counts of the one call."""
        return self._counted

    def stages(self) -> Mapping[str, Stage]:
        """All requests are queued until the call."""
        return {s.request.request_id: Stage.QUEUED for s in self._queued}

    @classmethod
    def joined(
        cls, model: LoadedModel, requests: Sequence[Request]
    ) -> Sequence[tuple[tuple[str, ...], Mapping[str, Any]]]:
        """See ``Engine.joined``: images of one size together, then requests without images."""
        groups: dict[tuple[int, ...], list[Request]] = {}
        for request in sorted(requests, key=lambda r: not r.media):
            groups.setdefault(_size(request), []).append(request)
        return [
            (tuple(r.request_id for r in group), _joint(model, group)) for group in groups.values()
        ]

    @classmethod
    def accepted(cls) -> Accepted:
        """See ``Engine.accepted``; the function passes other arguments to its generator."""
        library = compat.generation()
        passed_on = parameters_of(library.BatchGenerator.__init__)
        return {_PLACE: tuple(dict.fromkeys((*parameters_of(library.batch_generate), *passed_on)))}

    @classmethod
    def passed(cls, model: LoadedModel, schedule: Schedule) -> Sequence[Passed]:
        """See ``Engine.passed``."""
        recorder = Recorder()
        patches = [called(recorder, compat.generation(), _PLACE, cls.accepted()[_PLACE])]
        return record(cls, model, schedule, recorder, patches, stepping=True)

    def _check(self, request: Request, prompt: str) -> None:
        """Check that the function tokenizes the text to the oracle's prompt."""
        family, processor = self._loaded.family, self._loaded.processor
        if request.media and family.facts.stand_in is not None:
            raise Unsupported(
                f"{family.name}: batch_generate does not support images of which a stand-in makes "
                "the inputs"
            )
        config = self._loaded.model.config
        written = apply_chat_template(processor, config, prompt, num_images=len(request.media))
        again = prepare_inputs(
            processor,
            images=[draw(media) for media in request.media] or None,
            prompts=[written],
            image_token_index=getattr(config, "image_token_index", None),
            add_special_tokens=True,
        )
        if again["input_ids"][0].tolist() != list(request.prompt):
            raise Unsupported(
                f"{family.name}: batch_generate does not support the prompt of "
                f"{request.request_id!r} as it is: it writes {written!r}"
            )

    def _tokens(self, row: _Row, text: str) -> list[int]:
        """The row's recorded tokens if the returned text agrees, else the tokens of the text."""
        recorded = row.tokens[: row.request.max_tokens]
        detokenizer = self._loaded.processor.detokenizer
        detokenizer.reset()
        for token in recorded:
            detokenizer.add_token(token)
        detokenizer.finalize()
        if detokenizer.text == text:
            return recorded
        tokenizer = _tokenizer(self._loaded.processor)
        return [int(t) for t in tokenizer.convert_tokens_to_ids(text.split())]


@dataclass
class _Row:
    """One prompt of the call, with the logprobs from which its tokens were chosen."""

    request: Request
    forced: tuple[int, ...] | None
    logprobs: list[np.ndarray] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


class _Recorder:
    """The call's one sampler: records the logprobs of each row, chooses or forces tokens.

    The function decodes one group after the other. Rows begin together, or join the decoding rows;
    a row leaves when it has ``max_tokens`` tokens.
    """

    def __init__(self, groups: list[list[_Row]], choose: SamplerFn) -> None:
        self._groups = groups
        self._choose = choose
        self._rows: list[_Row] = []
        self._coming: list[_Row] = []

    def sample_target(
        self, logprobs: mx.array, *, row_ids: list[int], positions: list[int]
    ) -> mx.array:
        """Tokens ``[rows]`` from logprobs ``[rows, vocab]``; ``positions`` index output tokens."""
        del row_ids
        rows = self._begun(len(positions)) if positions[0] == 0 else self._decoding()
        table = np.array(logprobs.astype(mx.float32))
        chosen = np.array(self._choose(logprobs))
        for index, (row, at) in enumerate(zip(rows, positions, strict=True)):
            row.logprobs.append(table[index])
            if row.forced:
                chosen[index] = row.forced[min(at, len(row.forced) - 1)]
            row.tokens.append(int(chosen[index]))
        return mx.array(chosen.astype(np.uint32))

    def _begun(self, count: int) -> list[_Row]:
        """The next rows of this group, or of the next group."""
        if not self._coming:
            self._rows, self._coming = [], self._groups.pop(0)
        new, self._coming = self._coming[:count], self._coming[count:]
        self._rows += new
        return new

    def _decoding(self) -> list[_Row]:
        return [row for row in self._rows if row.request.max_tokens >= len(row.tokens)]

    def __call__(self, logprobs: mx.array) -> mx.array:
        del logprobs
        raise Unsupported("this mlx-vlm does not support samplers that need the rows' positions")


def _greedy(logprobs: mx.array) -> mx.array:
    return mx.argmax(logprobs, axis=-1)


def _tokenizer(processor: Any) -> Any:
    """The tokenizer that the function looks up: some processors are the tokenizer itself."""
    return getattr(processor, "tokenizer", processor)


def _groups(rows: list[_Row], *, sort: bool) -> list[list[_Row]]:
    """The function's groups of rows: images of one size together, then rows without images.

    Args:
        sort: sort by length, like the generator; without effect on padded prompts, which all
            have one length.
    """
    groups: dict[tuple[int, ...], list[_Row]] = {}
    for row in rows:
        groups.setdefault(_size(row.request), []).append(row)
    if not sort:
        return list(groups.values())
    return [sorted(group, key=lambda row: len(row.request.prompt)) for group in groups.values()]


def _size(request: Request) -> tuple[int, ...]:
    """The size of the request's image, by which the function groups; empty for text."""
    return request.media[0].size if request.media else ()


def _joint(model: LoadedModel, group: Sequence[Request]) -> dict[str, Any]:
    """The processor's output for several prompts, called as in the function.

    Source: ``mlx_vlm.generate.ar._generate_batch``.
    """
    config, images = model.model.config, [draw(media) for r in group for media in r.media]
    written = [
        apply_chat_template(model.processor, config, _text(r), num_images=len(r.media))
        for r in group
    ]
    made = prepare_inputs(
        model.processor,
        images=images or None,
        prompts=written,
        image_token_index=getattr(config, "image_token_index", None),
        add_special_tokens=True,
        pad_to_uniform_size=False,
    )
    return {name: in_numpy(value) for name, value in made.items() if value is not None}


def _text(request: Request) -> str:
    """The prompt's text without its image; the function puts the image before or after it."""
    if not request.media:
        return text_of([request.prompt])
    (media,) = request.media
    start, stop = media.span
    if media.kind != "image" or (start and stop != len(request.prompt)):
        raise Unsupported("batch_generate does not support media but one image beside the text")
    return text_of([request.prompt[:start] + request.prompt[stop:]])


def _events(row: _Row, tokens: list[int]) -> list[TokenEvent]:
    return [
        TokenEvent(
            request_id=row.request.request_id,
            token=token,
            logprobs=row.logprobs[index],
            token_logprob=float(row.logprobs[index][token]),
            finish_reason=FinishReason.LENGTH if index == len(tokens) - 1 else None,
        )
        for index, token in enumerate(tokens)
    ]
