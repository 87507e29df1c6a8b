"""What is lost, doubled or exchanged between the generation thread and a client."""

from __future__ import annotations

import importlib
import itertools
import json
from dataclasses import replace
from functools import partial
from typing import Any

from mlx_vlm.server import generation, openai, request_normalization
from mlx_vlm.server.responses_state import ThinkingStreamState
from mlx_vlm.server.schemas import ChatChoice, ChatResponse, ChatStreamChunk

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, together, wrap
from conformance.plugins.servers.planting import served_fault
from conformance.power.faults.servers.pieces import (
    Change,
    Pieces,
    ended_by_itself,
    exchanged,
    of_another,
)

_fault = partial(
    served_fault,
    engine="mlx_vlm_server",
    fault_class="server answers",
    source="issue trackers: streams of several servers",
    kills=("served_alone",),
)


class Changed:
    """The tokens of an answer, changed on their way; closed as those of the library are."""

    def __init__(self, own: Any, pieces: Pieces) -> None:
        self._own, self._pieces = own, pieces

    def __iter__(self) -> Changed:
        """Itself, as the library's."""
        return self

    def __next__(self) -> Any:
        """The next token."""
        return next(self._pieces)

    def close(self) -> None:
        """See the library's own."""
        self._own.close()


def answers(change: Change) -> Patch:
    """Each answer's tokens go through ``change`` on their way to the client."""

    def generate(right: Right, *args: Any, **options: Any) -> Any:
        context, tokens = right(*args, **options)
        return context, Changed(tokens, change(iter(tokens)))

    return wrap(generation.ResponseGenerator, "generate", generate)


@_fault("S1.answer-without-its-last-token")
def answer_without_its_last_token(hits: Hits) -> Patch:
    """An answer that ends by its limit lacks its last token."""

    def change(pieces: Pieces) -> Pieces:
        held = None
        for piece in pieces:
            if held is not None and piece.finish_reason == "length":
                hits.hit()
                held.finish_reason = piece.finish_reason
                yield held
                return
            if held is not None:
                yield held
            held = piece
        if held is not None:
            yield held

    return answers(change)


@_fault("S2.answer-without-its-first-token")
def answer_without_its_first_token(hits: Hits) -> Patch:
    """An answer of several tokens lacks its first one."""

    def change(pieces: Pieces) -> Pieces:
        for index, piece in enumerate(pieces):
            if index == 0 and piece.finish_reason is None:
                hits.hit()
                continue
            yield piece

    return answers(change)


@_fault("S3.token-of-another-request", kills=("served_together",))
def token_of_another_request(hits: Hits) -> Patch:
    """While several are answered, a piece is the one that another request got before."""
    return answers(of_another(hits, "text", "token", only=4))


@_fault("S4.answers-exchanged", kills=("served_together",))
def answers_exchanged(hits: Hits) -> Patch:
    """Two answers that begin one after the other go to each other's clients."""
    return answers(exchanged(hits))


@_fault("S6.logprobs-of-another-row", kills=("served_together",))
def logprobs_of_another_row(hits: Hits) -> Patch:
    """A token has the logprob of the one that another request got last."""
    return answers(of_another(hits, "logprobs"))


@_fault("S37.top-logprobs-of-another-row", kills=("served_traffic/logprobs",))
def top_logprobs_of_another_row(hits: Hits) -> Patch:
    """The likeliest tokens beside a token are those of another request."""
    return answers(of_another(hits, "top_logprobs"))


@_fault("S142.two-likeliest-tokens", kills=("served_traffic/logprobs",))
def two_likeliest_tokens(hits: Hits) -> Patch:
    """However many of the likeliest tokens a request asks for, it gets two."""

    def change(pieces: Pieces) -> Pieces:
        for piece in pieces:
            hits.hit_if(len(piece.top_logprobs or ()) > 2)
            piece.top_logprobs = piece.top_logprobs and piece.top_logprobs[:2]
            yield piece

    return answers(change)


def _signed(hits: Hits, **fields: str) -> Patch:
    """Each piece of an answer says this of itself."""

    def made(right: Right, piece: Any, **own: Any) -> None:
        hits.hit_if({**own, **fields} != own)
        right(piece, **{**own, **fields})

    return together(*(wrap(kind, "__init__", made) for kind in (ChatResponse, ChatStreamChunk)))


@_fault("S143.answers-of-one-id")
def answers_of_one_id(hits: Hits) -> Patch:
    """All answers have one id."""
    return _signed(hits, id="chatcmpl-1")


@_fault("S144.answer-names-another-model")
def answer_names_another_model(hits: Hits) -> Patch:
    """An answer names the model by which the server calls its own, and not the one asked for."""
    return _signed(hits, model="default_model")


@_fault("S38.no-top-logprobs", kills=("served_traffic/logprobs",))
def no_top_logprobs(hits: Hits) -> Patch:
    """The likeliest tokens are silently left out of all answers."""

    def change(pieces: Pieces) -> Pieces:
        for piece in pieces:
            hits.hit_if(piece.top_logprobs)
            piece.top_logprobs = None
            yield piece

    return answers(change)


@_fault("S38.logprobs-unasked", kills=("served_traffic/own_logprobs",))
def logprobs_unasked(hits: Hits) -> Patch:
    """Answers have logprobs whether or not their requests ask for them."""

    def built(args: Any, request: Any, *_: Any, **__: Any) -> Any:
        if request.logprobs is False:
            hits.hit()
            args.logprobs = request.logprobs = True
        return args

    return after(request_normalization, "_build_gen_args", built)


@_fault("S7.prompt-tokens-off-by-one")
def prompt_tokens_off_by_one(hits: Hits) -> Patch:
    """The usage of a stream counts a token too many in the prompt."""
    return _counted(hits, prompt=1, completion=0)


@_fault("S8.completion-tokens-off-by-one")
def completion_tokens_off_by_one(hits: Hits) -> Patch:
    """The usage of a stream counts a token too few in the answer."""
    return _counted(hits, prompt=0, completion=-1)


def _counted(hits: Hits, *, prompt: int, completion: int) -> Patch:
    def usage(right: Right, *args: Any) -> Any:
        hits.hit()
        *others, prompts, tokens = args
        return right(*others, prompts + prompt, tokens + completion)

    return wrap(openai, "_chat_usage_chunk", usage)


@_fault("S10.length-said-to-be-a-stop")
def length_said_to_be_a_stop(hits: Hits) -> Patch:
    """An answer that ends by its limit is said to have ended by itself."""

    def change(pieces: Pieces) -> Pieces:
        for piece in pieces:
            piece.finish_reason = ended_by_itself(hits, piece.finish_reason)
            yield piece

    return answers(change)


@_fault("S11.new-id-for-each-piece")
def new_id_for_each_piece(hits: Hits) -> Patch:
    """Each piece of a stream has an id of its own."""
    numbers = itertools.count()

    def made(right: Right, chunk: Any, **fields: Any) -> None:
        hits.hit()
        right(chunk, **{**fields, "id": f"{fields.get('id')}-{next(numbers)}"})

    return wrap(ChatStreamChunk, "__init__", made)


@_fault("S24.marker-lost-at-a-border", kills=("served_markers",))
def marker_lost_at_a_border(hits: Hits) -> Patch:
    """Nothing is held back that may be the begin of a marker: one in two pieces is not seen."""

    def feed(delta: Any, state: Any, *_: Any, **__: Any) -> Any:
        held, state.buffer = state.buffer, ""
        hits.hit_if(held)
        if state.in_thinking:
            delta.reasoning = (delta.reasoning or "") + held or None
        else:
            delta.content = (delta.content or "") + held or None
        return delta

    return after(ThinkingStreamState, "feed", feed)


@_fault("S25.reasoning-among-the-text", kills=("served_markers",))
def reasoning_among_the_text(hits: Hits) -> Patch:
    """The reasoning of a stream is part of its text, without its markers."""

    def feed(delta: Any, *_: Any, **__: Any) -> Any:
        hits.hit_if(delta.reasoning)
        delta.content = (delta.reasoning or "") + (delta.content or "") or None
        delta.reasoning = None
        return delta

    return after(ThinkingStreamState, "feed", feed)


_of_calls = partial(_fault, kills=("served_tools",))


@_of_calls("S60.first-call-alone")
def first_call_alone(hits: Hits) -> Patch:
    """Of several calls in one answer a client gets the first."""

    def process(found: Any, *_: Any, **__: Any) -> Any:
        hits.hit_if(len(found.calls) > 1)
        return replace(found, calls=found.calls[:1])

    return after(openai, "process_tool_calls", process)


@_of_calls("S62.cut-reasoning-is-text")
def cut_reasoning_is_text(hits: Hits) -> Patch:
    """Reasoning in which a stream ends is its text."""

    def feed(delta: Any, state: Any, *_: Any, last: bool = False, **__: Any) -> Any:
        if last and state.in_thinking and delta.reasoning:
            hits.hit()
            delta.content, delta.reasoning = delta.reasoning, None
        return delta

    return after(ThinkingStreamState, "feed", feed)


@_of_calls("S63.arguments-are-no-json")
def arguments_are_no_json(hits: Hits) -> Patch:
    """The arguments of a call are those of Python, with its quotes."""

    def process(found: Any, *_: Any, **__: Any) -> Any:
        hits.hit_if(found.calls)
        for call in found.calls:
            function = call["function"]
            function["arguments"] = str(json.loads(function["arguments"]))
        return found

    return after(openai, "process_tool_calls", process)


@_of_calls("S66.calls-said-to-be-a-stop")
def calls_said_to_be_a_stop(hits: Hits) -> Patch:
    """An answer in one piece that calls tools is said to have ended by itself."""

    def made(right: Right, choice: Any, **fields: Any) -> None:
        called = fields.get("finish_reason") == "tool_calls"
        hits.hit_if(called)
        right(choice, **{**fields, "finish_reason": "stop"} if called else fields)

    return wrap(ChatChoice, "__init__", made)


@_fault("S131.bytes-of-the-first-letter", kills=("served_traffic/logprobs",))
def bytes_of_the_first_letter(hits: Hits) -> Patch:
    """Beside the logprobs, a token has the first of its bytes."""
    app: Any = importlib.import_module("mlx_vlm.server.app")  # the package has an object so named

    def decoded(found: Any, *_: Any) -> Any:
        text, raw = found
        hits.hit_if(len(raw or ()) > 1)
        return text, raw[:1] if raw else raw

    return after(app, "_decode_token", decoded)
