"""What is lost, doubled or exchanged between the generation thread and a client."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

from mlx_lm import server
from mlx_lm.generate import TextStateMachine

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.plugins.servers.planting import served_fault
from conformance.power.faults.servers.pieces import (
    Pieces,
    ended_by_itself,
    exchanged,
    of_another,
)

_fault = partial(
    served_fault,
    engine="mlx_lm_server",
    fault_class="server answers",
    source="issue trackers: streams of several servers",
    kills=("served_alone",),
)


def answers(change: Callable[[Any, Pieces], Pieces]) -> Patch:
    """Each answer goes through ``change``, with its handler, on its way to the client."""
    asked = threading.local()

    def note(handler: Any, *_: Any) -> None:
        asked.handler = handler

    def generate(right: Right, *args: Any, **options: Any) -> Any:
        context, answer = right(*args, **options)
        return context, change(asked.handler, answer)

    return together(
        before(server.APIHandler, "handle_completion", note),
        wrap(server.ResponseGenerator, "generate", generate),
    )


def _without_text(hits: Hits, lost: Callable[[int, Any], bool]) -> Patch:
    """A stream lacks the text of the tokens for which ``lost`` says so."""

    def change(handler: Any, answer: Pieces) -> Pieces:
        for index, piece in enumerate(answer):
            if handler.stream and lost(index, piece):
                hits.hit()
                piece.text = ""
            yield piece

    return answers(change)


@_fault("S1.stream-without-its-last-token")
def stream_without_its_last_token(hits: Hits) -> Patch:
    """A stream that ends by its limit lacks its last token."""
    return _without_text(hits, lambda _, piece: piece.finish_reason == "length")


@_fault("S2.stream-without-its-first-token")
def stream_without_its_first_token(hits: Hits) -> Patch:
    """A stream lacks its first token: the client's connection is ready only for the second."""
    return _without_text(hits, lambda index, _: index == 0)


@_fault("S3.text-of-another-request", kills=("served_together",))
def text_of_another_request(hits: Hits) -> Patch:
    """While several are answered, a piece has the text that the one before got for another."""
    change = of_another(hits, "text", only=4)
    return answers(lambda _, pieces: change(pieces))


@_fault("S4.answers-exchanged", kills=("served_together",))
def answers_exchanged(hits: Hits) -> Patch:
    """Two answers that begin one after the other go to each other's clients."""
    change = exchanged(hits)
    return answers(lambda _, pieces: change(pieces))


@_fault("S5.piece-twice", kills=("served_alone",))
def piece_twice(hits: Hits) -> Patch:
    """The third piece of a stream is sent twice, as by a retry after a write that took long."""

    def change(handler: Any, answer: Pieces) -> Pieces:
        for index, piece in enumerate(answer):
            if handler.stream and index == 2:
                hits.hit()
                piece.text += piece.text
            yield piece

    return answers(change)


@_fault("S6.logprobs-of-another-row", kills=("served_together",))
def logprobs_of_another_row(hits: Hits) -> Patch:
    """A token has the logprob of the one that another request got last."""
    change = of_another(hits, "logprob")
    return answers(lambda _, pieces: change(pieces))


@_fault("S7.prompt-tokens-off-by-one")
def prompt_tokens_off_by_one(hits: Hits) -> Patch:
    """The usage of a stream counts a token too many in the prompt."""
    return _counted(hits, prompt=1, completion=0)


@_fault("S8.completion-tokens-off-by-one")
def completion_tokens_off_by_one(hits: Hits) -> Patch:
    """The usage of a stream counts a token too few in the answer."""
    return _counted(hits, prompt=0, completion=-1)


def _counted(hits: Hits, *, prompt: int, completion: int) -> Patch:
    def usage(right: Right, self: Any, prompts: int, tokens: int, *args: Any) -> Any:
        hits.hit()
        return right(self, prompts + prompt, tokens + completion, *args)

    return wrap(server.APIHandler, "completion_usage_response", usage)


@_fault("S9.total-without-the-prompt")
def total_without_the_prompt(hits: Hits) -> Patch:
    """The total of the usage leaves the prompt out."""

    def usage(right: Right, *args: Any) -> Any:
        said = right(*args)
        hits.hit()
        said["usage"]["total_tokens"] = said["usage"]["completion_tokens"]
        return said

    return wrap(server.APIHandler, "completion_usage_response", usage)


@_fault("S10.length-said-to-be-a-stop")
def length_said_to_be_a_stop(hits: Hits) -> Patch:
    """An answer that ends by its limit is said to have ended by itself."""

    def respond(right: Right, self: Any, text: str, reason: Any, *args: Any, **more: Any) -> Any:
        return right(self, text, ended_by_itself(hits, reason), *args, **more)

    return wrap(server.APIHandler, "generate_response", respond)


@_fault("S11.new-id-for-each-piece")
def new_id_for_each_piece(hits: Hits) -> Patch:
    """Each piece of a stream has an id of its own."""

    def respond(handler: Any, *_: Any, **__: Any) -> None:
        hits.hit_if(handler.stream)
        handler.request_id = f"chatcmpl-{uuid.uuid4()}"

    return before(server.APIHandler, "generate_response", respond)


@_fault("S12.whole-answer-without-its-first-token")
def whole_answer_without_its_first_token(hits: Hits) -> Patch:
    """An answer in one piece lacks the text of its first token."""

    def change(handler: Any, answer: Pieces) -> Pieces:
        for index, piece in enumerate(answer):
            if not handler.stream and index == 0:
                hits.hit()
                piece.text = ""
            yield piece

    return answers(change)


@_fault("S24.marker-lost-at-a-border", kills=("served_markers",))
def marker_lost_at_a_border(hits: Hits) -> Patch:
    """Nothing is held back that may be the begin of a marker: one in two pieces is not seen."""

    def split(right: Right, state: Any, text: str) -> Any:
        state, segments = right(state, text)
        state, held, current = TextStateMachine.flush(state)
        hits.hit_if(held)
        return state, [*segments, (current, held)]

    return wrap(TextStateMachine, "split", split)


@_fault("S25.reasoning-among-the-text", kills=("served_markers",))
def reasoning_among_the_text(hits: Hits) -> Patch:
    """Reasoning is part of the answer's text, without its markers."""

    def respond(right: Right, self: Any, text: str, *args: Any, **more: Any) -> Any:
        reasoning = more.pop("reasoning_text", "")
        hits.hit_if(reasoning)
        return right(self, reasoning + text, *args, **more)

    return wrap(server.APIHandler, "generate_response", respond)


class _WithoutEnd:
    """The writer of a connection, without the event that ends a stream."""

    def __init__(self, inner: Any, hits: Hits) -> None:
        self._inner, self._hits = inner, hits

    def write(self, data: bytes) -> int:
        if data.strip() == b"data: [DONE]":
            self._hits.hit()
            return len(data)
        written: int = self._inner.write(data)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@_fault("S1.stream-without-its-end", kills=("served_together/by_raw",))
def stream_without_its_end(hits: Hits) -> Patch:
    """A stream has all its pieces, but not the event at its end; OpenAI's client does not mind."""

    def cut(_: Any, self: Any) -> None:
        self.wfile = _WithoutEnd(self.wfile, hits)

    return after(server.APIHandler, "setup", cut)


_of_calls = partial(_fault, kills=("served_tools",))


@_of_calls("S59.cut-call-breaks-the-answer-off")
def cut_call_breaks_the_answer_off(hits: Hits) -> Patch:
    """What a parser raises for a call that the limit cuts ends the answer."""

    def call(formatter: Any, texts: list[str]) -> None:
        for text in texts:
            try:
                formatter._tool_parser(text, formatter._tools)
            except ValueError:
                hits.hit()
                raise

    return before(server.ToolCallFormatter, "__call__", call)


@_of_calls("S60.first-call-alone")
def first_call_alone(hits: Hits) -> Patch:
    """Of several calls in one answer a client gets the first."""

    def call(right: Right, formatter: Any, texts: list[str]) -> Any:
        hits.hit_if(len(texts) > 1)
        return right(formatter, texts[:1])

    return wrap(server.ToolCallFormatter, "__call__", call)


@_of_calls("S139.arguments-of-nothing-dropped")
def arguments_of_nothing_dropped(hits: Hits) -> Patch:
    """A call has no arguments that are 0, false or empty."""

    def form(_: Any, call: dict[str, Any]) -> None:
        given = call["arguments"]
        if isinstance(given, dict):
            call["arguments"] = {name: value for name, value in given.items() if value}
            hits.hit_if(call["arguments"] != given)

    return before(server.ToolCallFormatter, "_format", form)


@_of_calls("S61.text-after-a-call-lost")
def text_after_a_call_lost(hits: Hits) -> Patch:
    """A stream has no text after a call."""

    def respond(right: Right, self: Any, text: str, *args: Any, **more: Any) -> Any:
        if getattr(self, "called", "") == self.request_id:
            hits.hit_if(text)
            text = ""
        if self.stream and more.get("tool_calls"):
            self.called = self.request_id
        return right(self, text, *args, **more)

    return wrap(server.APIHandler, "generate_response", respond)


@_of_calls("S62.cut-reasoning-is-text")
def cut_reasoning_is_text(hits: Hits) -> Patch:
    """Reasoning that the limit cuts is an answer's text."""

    def respond(right: Right, self: Any, text: str, reason: Any, *args: Any, **more: Any) -> Any:
        if reason == "length" and more.get("reasoning_text") and not text:
            hits.hit()
            text = more.pop("reasoning_text")
        return right(self, text, reason, *args, **more)

    return wrap(server.APIHandler, "generate_response", respond)


@_of_calls("S63.arguments-are-no-json")
def arguments_are_no_json(hits: Hits) -> Patch:
    """The arguments of a call are those of Python, with its quotes."""

    def formatted(call: Any, *_: Any) -> Any:
        hits.hit()
        function = call["function"]
        return {
            **call,
            "function": {**function, "arguments": str(json.loads(function["arguments"]))},
        }

    return after(server.ToolCallFormatter, "_format", formatted)


@_of_calls("S64.reasoning-of-the-answer-before")
def reasoning_of_the_answer_before(hits: Hits) -> Patch:
    """An answer begins in reasoning if the limit cut another one in it before."""
    cut: list[str] = []

    def flush(found: Any, *_: Any) -> Any:
        if found[2] == "reasoning":
            cut.append(found[2])
        return found

    def make(right: Right, self: Any, initial: str = "normal") -> Any:
        hits.hit_if(cut)
        return right(self, cut.pop() if cut else initial)

    return together(
        wrap(TextStateMachine, "make_state", make), after(TextStateMachine, "flush", flush)
    )


@_of_calls("S65.calls-of-one-index")
def calls_of_one_index(hits: Hits) -> Patch:
    """All calls of a stream have the same index: a client makes one call of them."""

    def formatted(call: Any, *_: Any) -> Any:
        hits.hit_if(call.get("index"))
        return {**call, "index": 0} if "index" in call else call

    return after(server.ToolCallFormatter, "_format", formatted)


@_of_calls("S66.calls-said-to-be-a-stop")
def calls_said_to_be_a_stop(hits: Hits) -> Patch:
    """An answer that calls tools is said to have ended by itself."""

    def respond(right: Right, self: Any, text: str, reason: Any, *args: Any, **more: Any) -> Any:
        hits.hit_if(reason == "tool_calls")
        return right(self, text, "stop" if reason == "tool_calls" else reason, *args, **more)

    return wrap(server.APIHandler, "generate_response", respond)


@_of_calls("S84.stop-string-left-in-reasoning")
def stop_string_left_in_reasoning(hits: Hits) -> Patch:
    """The begin of a stop string that ends an answer stays in the reasoning."""

    def make(right: Right, tokenizer: Any, stop_words: Any = None) -> Any:
        made, plain = right(tokenizer, stop_words), right(tokenizer)
        if stop_words and "reasoning" in plain._states:
            hits.hit()
            made._states["reasoning"] = plain._states["reasoning"]
        return made

    return wrap(server, "make_text_state_machine", make)


@_fault("S83.cached-tokens-with-the-answer", kills=("served_prefixes/one_by_one",))
def cached_tokens_with_the_answer(hits: Hits) -> Patch:
    """The cached_tokens of an answer in one piece count its own tokens, too."""

    def respond(right: Right, self: Any, *args: Any, **more: Any) -> Any:
        text, reason, prompt, made, cached, *rest = (*args, *[None] * 5)[: max(5, len(args))]
        if not self.stream and cached:
            hits.hit()
            cached += made
        given = (text, reason, prompt, made, cached, *rest)[: len(args)]
        return right(self, *given, **more)

    return wrap(server.APIHandler, "generate_response", respond)
