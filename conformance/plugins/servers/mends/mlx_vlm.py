"""Mends of known defects of ``mlx_vlm.server``."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import mlx.core as mx
from fastapi import HTTPException
from mlx.utils import tree_flatten
from mlx_vlm import apc
from mlx_vlm import server as package
from mlx_vlm.generate import ar
from mlx_vlm.models.llava.processing_llava import LlavaProcessor
from mlx_vlm.sample_utils import apply_top_p, make_sampler
from mlx_vlm.server import anthropic, generation, openai, request_normalization
from mlx_vlm.server.responses_state import (
    ToolCallStreamState,
    _is_whole_tag,
    prompt_has_open_thinking,
)
from mlx_vlm.tokenizer_utils import _ServerTokenStreamer
from mlx_vlm.tools.parsers import mistral
from mlx_vlm.tools.streaming import ToolCallDeltaState
from mlx_vlm.utils import get_model_path
from starlette.requests import Request

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.core.mends import Mend
from conformance.plugins.mlx_vlm.mends import joined_requests
from conformance.plugins.servers.planting import served_mend

_REFUSED = 400


def _checked(problem: Callable[[dict[str, Any]], str], hits: Hits) -> Patch:
    """A request whose body has a problem is refused before anything is done."""

    async def body(right: Right, self: Any) -> Any:
        found = await right(self)
        wrong = problem(found) if isinstance(found, dict) else ""
        hits.hit_if(wrong)
        if wrong:
            raise HTTPException(status_code=_REFUSED, detail=wrong)
        return found

    return wrap(Request, "json", body)


@served_mend("server-numbers-out-of-range")
def numbers_are_in_range(hits: Hits) -> Patch:
    """A count below 1, a temperature below 0 and a share above 1 are refused."""
    ranges = {"max_tokens": (1, None), "temperature": (0, None), "top_p": (0, 1)}

    def problem(body: dict[str, Any]) -> str:
        for name, (low, high) in ranges.items():
            value = body.get(name)
            if not isinstance(value, int | float):
                continue
            if value < low or (high is not None and value > high):
                return f"{name} is out of range: {value}"
        return ""

    return _checked(problem, hits)


@served_mend("server-stream-of-no-truth-value")
def stream_is_a_truth_value(hits: Hits) -> Patch:
    """What says whether an answer is streamed must be true or false."""
    problem = "stream must be true or false"
    return _checked(lambda b: "" if isinstance(b.get("stream", False), bool) else problem, hits)


@served_mend("server-bias-of-no-number")
def biases_are_numbers(hits: Hits) -> Patch:
    """A bias that is no number is refused."""

    def problem(body: dict[str, Any]) -> str:
        biases = (body.get("logit_bias") or {}).values()
        wrong = [found for found in biases if not isinstance(found, int | float)]
        return f"logit_bias must be numbers, not {wrong[0]!r}" if wrong else ""

    return _checked(problem, hits)


@served_mend("server-unknown-model-unloads")
def unknown_models_are_refused_first(hits: Hits) -> Patch:
    """A model that is not there is refused before the one that is loaded is let go."""

    def problem(body: dict[str, Any]) -> str:
        name = str(body.get("model", ""))
        if Path(name).exists():
            return ""
        try:
            get_model_path(name)
        except Exception as error:  # noqa: BLE001 - whatever the hub's client raises
            return f"there is no model {name!r}: {error}"
        return ""

    return _checked(problem, hits)


@served_mend("server-unreadable-image")
def unreadable_images_are_refused(hits: Hits) -> Patch:
    """An image that cannot be read is the client's mistake, as a prompt that is too long is."""

    def read(right: Right, *args: Any, **options: Any) -> Any:
        try:
            return right(*args, **options)
        except ValueError as error:
            hits.hit()
            raise generation.PromptTooLongError(str(error)) from error

    return wrap(generation.ResponseGenerator, "_preprocess_request", read)


@served_mend("server-sampler-of-the-first")
def rows_have_their_own_samplers(hits: Hits) -> Patch:
    """Each row of a batch is sampled as its own request asks."""
    samplers: dict[int, Any] = {}
    asked: list[Any] = []
    uids: list[int] = []

    def note(self: Any, args: Any, *_: Any) -> None:
        # The server makes these immediately before it inserts the request.
        asked[:] = [self._make_sampler(args) or (lambda row: mx.argmax(row, axis=-1))]

    def inserted(found: Any, *_: Any, **__: Any) -> Any:
        samplers.update(dict.fromkeys(found, asked[0]))
        return found

    def rows(batch: Any, *_: Any, **__: Any) -> None:
        uids[:] = batch.uids

    def sample(right: Right, first: Any, logprobs: Any, *, row_ids: Any, positions: Any) -> Any:
        own = [samplers.get(uid, first) for uid in uids]
        hits.hit_if(any(sampler is not first for sampler in own))
        each = [
            right(own[i], logprobs[i : i + 1], row_ids=row_ids[i : i + 1], positions=[position])
            for i, position in enumerate(positions)
        ]
        return mx.concatenate(each)

    return together(
        before(generation.ResponseGenerator, "_make_logits_processors", note),
        after(ar.BatchGenerator, "insert", inserted),
        before(ar.GenerationBatch, "_step", rows),
        before(ar.PromptProcessingBatch, "generate", rows),
        wrap(ar, "_sample_with_positions", sample),
    )


@served_mend("server-logprobs-of-the-first")
def all_rows_have_logprobs(hits: Hits) -> Patch:
    """The generator computes logprobs whoever comes first; only who asks for them gets them."""

    def made(right: Right, *args: Any, **options: Any) -> None:
        hits.hit_if(not options.get("compute_logprobs"))
        wanted = {"compute_logprobs": True, "top_logprobs_k": generation.get_top_logprobs_k()}
        right(*args, **options | wanted)

    return wrap(ar.BatchGenerator, "__init__", made)


@served_mend("server-draws-alike")
def requests_without_seeds_draw_their_own(hits: Hits) -> Patch:
    """A request that names no seed gets one of its own."""
    seeds = random.Random()

    def seeded(args: Any, request: Any, *_: Any, **__: Any) -> Any:
        if "seed" not in request.model_fields_set:
            hits.hit_if(args.temperature)
            args.seed = seeds.getrandbits(32)
        return args

    return after(request_normalization, "_build_gen_args", seeded)


@served_mend("server-prefix-without-the-grid")
def keys_have_the_shapes_of_pictures(hits: Hits) -> Patch:
    """The key of what is kept of a prompt has the grids of its pictures, too."""
    asked = threading.local()

    def read(found: Any, *_: Any, **__: Any) -> Any:
        asked.grid = found.get("image_grid_thw")
        return found

    def key(right: Right, **options: Any) -> int:
        grid, asked.grid = getattr(asked, "grid", None), None
        if grid is None or "tenant" not in options:
            return int(right(**options))
        hits.hit()
        media = {**(options.get("media") or {}), "grid": grid}
        return int(right(**{**options, "media": media}))

    return together(
        after(generation.ResponseGenerator, "_preprocess_request", read),
        wrap(apc, "semantic_extra_hash", key),
    )


@served_mend("server-adapter-of-another-client")
def plain_requests_get_the_first_adapter(hits: Hits) -> Patch:
    """A request that names no adapter gets the one with which the server was started, or none."""
    app: Any = importlib.import_module("mlx_vlm.server.app")  # the package has an object so named
    first: list[str | None] = []

    def preload(_: str, adapter: Any = None, **__: Any) -> None:
        first.append(adapter)

    def get(right: Right, path: str, adapter: Any = app._INHERIT_ADAPTER, **options: Any) -> Any:
        if adapter is app._INHERIT_ADAPTER:
            hits.hit()
            adapter = first[0] if first else None
        return right(path, adapter, **options)

    # The server's own start calls the function of its module, requests that of the package.
    return together(
        before(app, "get_cached_model", preload), wrap(package, "get_cached_model", get)
    )


@served_mend("server-generator-of-another-client")
def requests_keep_their_generators(hits: Hits) -> Patch:
    """A request generates by what it has loaded, which is not stopped for another one."""
    app: Any = importlib.import_module("mlx_vlm.server.app")
    own: ContextVar[Any] = ContextVar("own", default=None)
    kind = "text_generation"

    class Runtime(type(app.runtime)):  # type: ignore[misc]
        """The state of a server, in which each request finds its own generator."""

        @property
        def response_generator(self) -> Any:
            newest = vars(self).get("response_generator")
            hits.hit_if(own.get() not in (None, newest))
            return own.get() or newest

        @response_generator.setter
        def response_generator(self, made: Any) -> None:
            self.__dict__["response_generator"] = made
            own.set(made)

    def unload(right: Right, group: str) -> bool:
        if group != kind:
            return bool(right(group))
        # Requests that have loaded it may be about to begin.
        return app._model_cache_registry().pop(kind) is not None

    return together(_of_class(app.runtime, Runtime), wrap(app, "_unload_model_cache_group", unload))


@contextlib.contextmanager
def _of_class(owner: Any, kind: type) -> Iterator[None]:
    """The object is of this class inside the block."""
    own = type(owner)
    owner.__class__ = kind
    try:
        yield
    finally:
        owner.__class__ = own


class _OfTokenizer(int):
    """A token with the tokenizer of the model that made it."""

    tokenizer: Any = None


@served_mend("server-logprobs-by-another-tokenizer")
def entries_are_named_by_their_own_tokenizer(hits: Hits) -> Patch:
    """The entry of a token has the text that the tokenizer of its own model gives it."""

    def generate(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        context, tokens = right(self, *args, **options)

        def marked() -> Iterator[Any]:
            for piece in tokens:
                token = _OfTokenizer(piece.token)
                token.tokenizer = self.tokenizer
                yield dataclasses.replace(piece, token=token)

        return context, _Stopping(tokens, marked())

    def named(right: Right, tokenizer: Any, token: Any, *args: Any, **options: Any) -> Any:
        own = getattr(token, "tokenizer", None)
        hits.hit_if(own is not None and own is not tokenizer)
        return right(own or tokenizer, int(token), *args, **options)

    return together(
        wrap(generation.ResponseGenerator, "generate", generate),
        wrap(openai, "_make_logprob_content", named),
    )


@served_mend("server-later-name-of-the-limit")
def limits_have_two_names(hits: Hits) -> Patch:
    """A chat's max_completion_tokens is its limit, as max_tokens is."""

    def built(args: Any, request: Any, *_: Any, **__: Any) -> Any:
        most = getattr(request, "max_completion_tokens", None)
        hits.hit_if(most is not None)
        args.max_tokens = args.max_tokens if most is None else most
        return args

    return after(request_normalization, "_build_gen_args", built)


@served_mend("server-min-p-ignored")
def unlikely_tokens_are_left_out(hits: Hits) -> Patch:
    """A request with min_p is sampled from the tokens that it leaves."""

    def make(right: Right, self: Any, args: Any) -> Any:
        sampler = right(self, args)
        if not args.min_p or sampler is None:
            return sampler
        hits.hit()
        return make_sampler(
            temp=args.temperature, top_p=args.top_p, top_k=args.top_k, min_p=args.min_p
        )

    return wrap(generation.ResponseGenerator, "_make_sampler", make)


@served_mend("server-nucleus-of-top-k")
def nuclei_are_those_of_the_library(hits: Hits) -> Patch:
    """The nucleus is taken of all tokens, before top_k and the temperature."""
    kind = generation._PositionedTargetSampler

    def made(_: Any, sampler: Any, **__: Any) -> None:
        # The server's own nucleus comes later.
        sampler.nucleus, sampler.top_p = sampler.top_p, 1.0

    def left(right: Right, sampler: Any, logprobs: mx.array) -> Any:
        if 0 < sampler.nucleus < 1:
            hits.hit()
            logprobs = apply_top_p(logprobs, sampler.nucleus)
        return right(sampler, logprobs)

    return together(after(kind, "__init__", made), wrap(kind, "_apply_top_k", left))


@served_mend("server-stop-ignored")
def answers_stop(hits: Hits) -> Patch:
    """An answer ends before a stop sequence of its request; one that is no text is refused."""

    def problem(body: dict[str, Any]) -> str:
        stop = body.get("stop")
        words = stop if isinstance(stop, list) else [stop] if stop is not None else []
        texts = all(isinstance(word, str) for word in words)
        return "" if texts else "stop must be a text or a list of texts"

    def kept(args: Any, request: Any, *_: Any, **__: Any) -> Any:
        stop = getattr(request, "stop", None) or ()
        args.stop_words = [stop] if isinstance(stop, str) else list(stop)
        return args

    def generate(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        context, tokens = right(self, *args, **options)
        words = getattr(options.get("args"), "stop_words", ())
        stops = [self.tokenizer.encode(word, add_special_tokens=False) for word in words]
        hits.hit_if(stops)
        return context, _Stopping(tokens, _until(tokens, stops, words)) if stops else tokens

    return together(
        _checked(problem, hits),
        after(request_normalization, "_build_gen_args", kept),
        wrap(generation.ResponseGenerator, "generate", generate),
    )


@served_mend("server-stop-sequences-afterwards")
def messages_stop(hits: Hits) -> Patch:
    """A message ends before a stop sequence of its request, which is named as what ended it."""
    ended: dict[int, str] = {}  # by the request's list of sequences

    def kept(args: Any, request: Any, *_: Any, **__: Any) -> Any:
        args.of_message = getattr(request, "stop_sequences", None)
        return args

    def generate(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        context, tokens = right(self, *args, **options)
        every = (*args, *options.values())
        given = next((one for one in every if hasattr(one, "max_tokens")), None)
        words = getattr(given, "of_message", None)
        if not words:
            return context, tokens
        hits.hit()
        stops = [self.tokenizer.encode(word, add_special_tokens=False) for word in words]

        def counted() -> Iterator[Any]:
            for piece in _until(tokens, stops, words):
                count = piece.token_count
                found = [
                    word
                    for word, stop in zip(words, stops, strict=True)
                    if piece.finish_reason == "stop" and len(stop) == count
                ]
                if found:
                    ended[id(words)] = found[0]
                    more = dataclasses.replace(piece, token_count=1, finish_reason=None)
                    yield from [more] * (count - 1)
                yield dataclasses.replace(piece, token_count=1)

        return context, _Stopping(tokens, counted())

    def applied(right: Right, text: str, sequences: Any) -> Any:
        found = ended.pop(id(sequences), None)
        # What would come after it does not matter: any of the sequences may.
        return right(" | ".join([f"{text}{found}", *sequences]) if found else text, sequences)

    return together(
        after(request_normalization, "_build_gen_args", kept),
        wrap(generation.ResponseGenerator, "generate", generate),
        wrap(anthropic, "_apply_stop_sequences", applied),
    )


@served_mend("server-usage-without-markers")
def usage_has_all_tokens(hits: Hits) -> Patch:
    """No token of an answer is left out of its usage."""

    def counted(right: Right, *args: Any, **options: Any) -> int:
        hits.hit_if(right(*args, **options))
        return 0

    return wrap(openai, "_count_thinking_tag_tokens", counted)


@served_mend("server-incomplete-tool-call")
def calls_come_whole(hits: Hits) -> Patch:
    """No part of a call is sent before the call is closed: nothing need be taken back.

    In one piece, the text of a call that is not closed is that of a stream.
    """

    def feed(right: Right, state: Any, text: str) -> list[Any]:
        hits.hit_if(right(state, text))
        state.calls.clear()
        return []

    def strip(right: Right, text: str, module: Any, *markers: Any) -> Any:
        start = module.tool_call_start
        before, marker, call = text.partition(start)
        hits.hit_if(marker)
        if not marker:
            return right(text, module, *markers)
        shown = call if _is_whole_tag(start) else marker + call
        return f"{right(before, module, *markers)} {shown}".strip()

    return together(
        wrap(ToolCallDeltaState, "feed", feed), wrap(openai, "strip_protocol_markers", strip)
    )


@served_mend("server-calls-of-mistral")
def each_call_is_parsed(hits: Hits) -> Patch:
    """Calls of which each has a marker are parsed one by one; a stream has the text of none."""

    def parse(right: Right, text: str, tools: Any = None) -> Any:
        texts = text.split(mistral.tool_call_start)
        hits.hit_if(len(texts) > 1)
        found = [right(one, tools) for one in texts]
        return [call for one in found for call in (one if isinstance(one, list) else [one])]

    def feed(right: Right, state: Any, text: str | None, *, last: bool = False) -> Any:
        shown = right(state, text, last=last)
        if state.tc_start != mistral.tool_call_start:
            return shown
        state.said = getattr(state, "said", "") + (text or "")
        _, marker, call = state.said.partition(state.tc_start)
        if not last or not marker:
            return shown
        try:
            mistral.parse_tool_call(call)
        except ValueError:
            hits.hit()
            return (shown or "") + marker + call
        return shown

    return together(
        wrap(mistral, "parse_tool_call", parse), wrap(ToolCallStreamState, "feed", feed)
    )


@served_mend("server-llava-padding")
def options_of_texts_are_for_texts(hits: Hits) -> Patch:
    """The image processor does not get how texts are padded; the server's prompts come singly."""

    def call(right: Right, self: Any, images: Any = None, text: Any = None, **options: Any) -> Any:
        hits.hit_if(images is not None and "padding" in options)
        if images is not None:
            options = {name: value for name, value in options.items() if name != "padding"}
        return right(self, images, text, **options)

    return wrap(LlavaProcessor, "__call__", call)


@served_mend("server-late-cancellation")
def uids_go_on(hits: Hits) -> Patch:
    """The uids of a new generator go on from those of the one before."""
    last: list[Any] = []

    def made(_: Any, batch: Any, *__: Any, **___: Any) -> None:
        if last:
            hits.hit()
            batch.uid_count = last[-1].uid_count
        last[:] = [batch]

    return after(ar.BatchGenerator, "__init__", made)


@served_mend("server-cut-reasoning-of-a-message")
def cut_reasoning_of_a_message_is_reasoning(hits: Hits) -> Patch:
    """A message in one piece begins in reasoning if its prompt has begun it, as a stream does."""
    asked: ContextVar[str] = ContextVar("asked", default="")

    def rendered(prompt: Any, *_: Any, **__: Any) -> Any:
        asked.set(prompt)
        return prompt

    def split(right: Right, text: str, *markers: Any, **options: Any) -> Any:
        opened = prompt_has_open_thinking(asked.get(), True, *markers)
        hits.hit_if(opened)
        return right(text, *markers, starts_in_thinking=opened, **options)

    return together(
        after(anthropic, "apply_chat_template", rendered),
        wrap(anthropic, "_split_thinking", split),
    )


@served_mend("server-response-text-beside-calls")
def text_beside_calls_is_a_message(hits: Hits) -> Patch:
    """A response in one piece has the text that is beside its calls, as a stream has."""

    def items(right: Right, text: str, name: str, *args: Any, **options: Any) -> Any:
        found, content, *rest = right(text, name, *args, **options)
        if content and "tool_delta_state" not in options and "message" not in map(_type_of, found):
            hits.hit()
            part = {"type": "output_text", "text": content, "annotations": []}
            whole = {"id": name, "type": "message", "role": "assistant", "content": [part]}
            at = [_type_of(item) for item in found].count("reasoning")
            found = [*found[:at], {**whole, "status": "completed"}, *found[at:]]
        return found, content, *rest

    return wrap(openai, "_response_output_items_from_text", items)


def _type_of(item: dict[str, Any]) -> str:
    return str(item["type"])


class _Stopping:
    """The tokens of an answer before a stop sequence; closed as the library's are."""

    def __init__(self, own: Any, tokens: Iterator[Any]) -> None:
        self._own, self._tokens = own, tokens

    def __iter__(self) -> _Stopping:
        return self

    def __next__(self) -> Any:
        return next(self._tokens)

    def close(self) -> None:
        self._own.close()


def _until(tokens: Any, stops: list[list[int]], words: Sequence[str]) -> Iterator[Any]:
    """The tokens before any of these sequences; a possible beginning of one is held back.

    A string that begins or ends within tokens ends the answer there.
    """
    held: list[Any] = []
    longest = max(map(len, (*stops, *words)))
    for piece in tokens:
        held.append(piece)
        said = "".join(one.text for one in held)
        if found := [(said.index(w) + len(w), said.index(w)) for w in words if w in said]:
            least = min(found)[1]
            whole = len(said) == min(found)[0] and any(
                [one.token for one in held[-len(stop) :]] == stop for stop in stops
            )
            if not whole:
                yield from _cut(held, least)
                return
        for stop in stops:
            if [one.token for one in held[-len(stop) :]] == stop:
                yield from held[: -len(stop)]
                count = len(stop)
                yield dataclasses.replace(piece, text="", finish_reason="stop", token_count=count)
                return
        while held and (piece.finish_reason or sum(len(one.text) for one in held[1:]) >= longest):
            yield held.pop(0)
    yield from held


def _cut(held: list[Any], end: int) -> Iterator[Any]:
    """Pieces whose joined text ends there; the last has none."""
    texts = []
    for piece in held:
        texts.append(piece.text[:end])
        end -= len(texts[-1])
    if len(texts) > 1:
        texts[-2:] = ["".join(texts[-2:]), ""]
    for piece, text in zip(held, texts, strict=True):
        reason = "stop" if piece is held[-1] else None
        yield dataclasses.replace(piece, text=text, finish_reason=reason)


@served_mend("server-cut-bytes-kept")
def cut_characters_are_replaced_where_they_are(hits: Hits) -> Patch:
    """The bytes of a character that another piece cuts off come before that piece."""

    def text(right: Right, self: Any, token: int) -> Any:
        cut = "" if self._is_byte_token[token] else self._decoder.decode(b"", final=True)
        hits.hit_if(cut)
        return cut + right(self, token)

    return wrap(_ServerTokenStreamer, "_spm_text_for_token", text)


@served_mend("server-last-text-lost")
def last_texts_come_whole(hits: Hits) -> Patch:
    """The last text of an answer comes, also if its last character is cut."""

    def advance(right: Right, self: Any, token: int, finish_reason: Any) -> Any:
        said = right(self, token, finish_reason)
        detokenizer = self._detokenizer
        if finish_reason is None or said:
            return said
        text = detokenizer.text[detokenizer.offset :]
        hits.hit_if(text)
        return text

    return wrap(_ServerTokenStreamer, "_fallback_advance", advance)


@served_mend("server-arrays-of-another-thread")
def arrays_are_computed_where_they_are_made(hits: Hits) -> Patch:
    """What the processor returns is computed in the thread of its request."""

    def prepared(found: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        leaves: Any = tree_flatten(found)
        arrays = [value for _, value in leaves if isinstance(value, mx.array)]
        hits.hit_if(arrays)
        mx.eval(arrays)
        return found

    return after(generation.ResponseGenerator, "_preprocess_request", prepared)


FEATURES_ARE_ALIGNED_WITH_TOKENS = served_mend("qwen3-vl-features-of-first-row-served")(
    joined_requests.features_are_aligned_with_tokens.repair
)
ROWS_OF_TEXT_HAVE_MASKS = served_mend("qwen3-vl-mask-of-some-rows-served")(
    joined_requests.rows_of_text_have_masks.repair
)

MENDS = tuple(value for value in tuple(globals().values()) if isinstance(value, Mend))
