"""Mends of known defects of ``mlx_lm.server``."""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
from huggingface_hub.errors import CacheNotFound
from mlx_lm import server
from mlx_lm.generate import TextStateMachine
from mlx_lm.models.cache import ChunkedKVCache, LRUPromptCache

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.core.mends import Mend
from conformance.plugins.mlx_lm.mends import batch_generator
from conformance.plugins.servers.planting import served_mend

_OF_TRIE = ("__fail__", "__match__")  # keys of a node that are no character
_QUEUE = 1024  # connections that wait to be accepted


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _refused(self: Any, reason: str) -> None:
    self._set_completion_headers(400)
    self.end_headers()
    self.wfile.write(json.dumps({"error": reason}).encode())


@served_mend("server-stop-of-no-text")
def stops_are_texts(hits: Hits) -> Patch:
    """A stop sequence that is no text is refused."""

    def check(self: Any) -> None:
        stop = self.body.get("stop")
        found = stop if isinstance(stop, list) else [stop or ""]
        wrong = not all(map(_text, found))
        hits.hit_if(wrong)
        if wrong:
            raise ValueError("stop must be a text or a list of texts")

    return before(server.APIHandler, "validate_model_parameters", check)


@served_mend("server-empty-prompt")
def prompts_have_tokens(hits: Hits) -> Patch:
    """A prompt without any token is refused; the loop hands the exception to who asked."""

    def tokenized(found: Any, *_: Any) -> Any:
        hits.hit_if(not found[0])
        if not found[0]:
            raise ValueError("the prompt has no tokens")
        return found

    return after(server.ResponseGenerator, "_tokenize", tokenized)


@served_mend("server-last-caches")
def loops_keep_no_caches(hits: Hits) -> Patch:
    """What is handed to the prefix store leaves the lists that the loop's variables hold."""

    def insert(right: Right, store: Any, model: Any, tokens: Any, kept: Any, **options: Any) -> Any:
        hits.hit_if(bool(kept))
        own = [*kept]
        kept.clear()
        return right(store, model, tokens, own, **options)

    return wrap(LRUPromptCache, "insert_cache", insert)


@served_mend("server-top-logprobs")
def logprobs_are_of_the_generated_token(hits: Hits) -> Patch:
    """An entry is of the token that was generated; those beside it are sorted."""

    def made(response: Any, handler: Any, *_: Any, **options: Any) -> Any:
        tops = options.get("top_tokens")
        if tops:
            hits.hit()
            said = zip(options["tokens"], options["token_logprobs"], tops, strict=True)
            response["choices"][0]["logprobs"] = {
                "content": [_entry(handler, *each) for each in said]
            }
        return response

    return after(server.APIHandler, "generate_response", made)


@served_mend("server-entries-without-token")
def entries_have_names(hits: Hits) -> Patch:
    """An entry has its token's name, also where no likeliest tokens are asked for."""

    def made(response: Any, handler: Any, *_: Any, **__: Any) -> Any:
        for entry in (response["choices"][0].get("logprobs") or {}).get("content", ()):
            hits.hit_if("token" not in entry)
            entry.setdefault("token", _name(handler, entry["id"]))
        return response

    return after(server.APIHandler, "generate_response", made)


def _name(handler: Any, token: int) -> str:
    tokenizer = handler.response_generator.model_provider.tokenizer
    return str(tokenizer.convert_ids_to_tokens([token])[0])


def _entry(handler: Any, token: int, logprob: float, top: Any) -> dict[str, Any]:
    ordered = sorted(top, key=lambda entry: -entry["logprob"])
    name = _name(handler, token)
    return {"id": token, "token": name, "logprob": logprob, "top_logprobs": ordered}


@served_mend("server-streams-without-logprobs")
def streams_have_logprobs(hits: Hits) -> Patch:
    """Each piece of a stream has the entries of its tokens, if they are asked for."""
    own = threading.local()  # a thread answers one request

    def generate(
        right: Right, self: Any, request: Any, args: Any, *more: Any, **options: Any
    ) -> Any:
        context, tokens = right(self, request, args, *more, **options)
        own.wanted, own.tokens = args.logprobs, []
        return context, noted(tokens)

    def noted(tokens: Iterator[Any]) -> Iterator[Any]:
        for token in tokens:
            own.tokens.append(token)
            yield token

    def made(response: Any, handler: Any, *_: Any, **__: Any) -> Any:
        if handler.stream and own.wanted and own.tokens:
            hits.hit()
            entries = [_entry(handler, t.token, t.logprob, t.top_tokens) for t in own.tokens]
            response["choices"][0]["logprobs"] = {"content": entries}
            own.tokens = []
        return response

    return together(
        wrap(server.ResponseGenerator, "generate", generate),
        after(server.APIHandler, "generate_response", made),
    )


@served_mend("server-unclosed-calls")
def calls_are_closed(hits: Hits) -> Patch:
    """A call that is not closed is none, and an answer without calls did not end by one.

    Where a parser has no marker for the end of a call, the end of the answer closes it.
    """
    own = threading.local()  # a thread answers one request

    def read(found: Any, *_: Any) -> Any:
        own.state = found[0][0]
        return found

    def call(right: Right, formatter: Any, texts: list[str]) -> Any:
        marked = sys.modules[formatter._tool_parser.__module__] if texts else None
        if marked is not None and own.state == "tool" and marked.tool_call_end:
            hits.hit()
            texts = texts[:-1]
        return right(formatter, texts)

    def respond(right: Right, self: Any, text: str, reason: Any, *args: Any, **more: Any) -> Any:
        if getattr(own, "id", "") != self.request_id:
            own.id, own.called = self.request_id, False
        own.called = own.called or bool(more.get("tool_calls"))
        if reason == "tool_calls" and not own.called:
            hits.hit()
            reason = "stop"
        return right(self, text, reason, *args, **more)

    return together(
        after(TextStateMachine, "split", read),
        after(TextStateMachine, "flush", read),
        after(TextStateMachine, "discard", read),
        wrap(server.ToolCallFormatter, "__call__", call),
        wrap(server.APIHandler, "generate_response", respond),
    )


@served_mend("server-models-without-cache")
def no_cache_is_an_empty_one(hits: Hits) -> Patch:
    """Where nothing was downloaded, no downloaded model is listed."""

    def scan(right: Right) -> Any:
        try:
            return right()
        except CacheNotFound:
            hits.hit()
            return SimpleNamespace(repos=())

    return wrap(server, "scan_cache_dir", scan)


@served_mend("server-completion-logprobs")
def logprobs_of_a_text_are_a_number(hits: Hits) -> Patch:
    """Of a text to complete, logprobs may be a number; any but 0 asks for them."""

    def check(self: Any) -> None:
        number = isinstance(self.logprobs, int) and not isinstance(self.logprobs, bool)
        if number and self.path.endswith("/v1/completions"):
            hits.hit()
            self.logprobs = self.logprobs > 0

    return before(server.APIHandler, "validate_model_parameters", check)


@served_mend("server-whole-numbers-of-xtc")
def whole_numbers_are_numbers(hits: Hits) -> Patch:
    """The fields of XTC may be whole numbers."""

    def check(self: Any) -> None:
        for name in ("xtc_probability", "xtc_threshold"):
            value = getattr(self, name)
            if isinstance(value, int) and not isinstance(value, bool):
                hits.hit()
                setattr(self, name, float(value))

    return before(server.APIHandler, "validate_model_parameters", check)


@served_mend("server-stream-options")
def usage_is_left_out_where_it_is_not_asked_for(hits: Hits) -> Patch:
    """The options of a stream need not say whether usage is wanted."""

    def complete(self: Any, *_: Any) -> None:
        if self.stream_options is not None and "include_usage" not in self.stream_options:
            hits.hit()
            self.stream_options = {**self.stream_options, "include_usage": False}

    return before(server.APIHandler, "handle_completion", complete)


@served_mend("server-no-utf8")
def bodies_that_are_no_text_are_refused(hits: Hits) -> Patch:
    """A body that is no UTF-8 is answered with a status of 400."""

    def post(right: Right, self: Any) -> None:
        try:
            right(self)
        except UnicodeDecodeError as error:
            hits.hit()
            _refused(self, f"the request is no UTF-8: {error}")

    return wrap(server.APIHandler, "do_POST", post)


@served_mend("server-content-of-no-text")
def contents_are_texts(hits: Hits) -> Patch:
    """A message whose content is neither a text nor a list is refused."""

    def check(messages: Any, **_: Any) -> None:
        contents = [message.get("content") for message in messages]
        wrong = [found for found in contents if not isinstance(found, str | list | None)]
        hits.hit_if(wrong)
        if wrong:
            raise ValueError(f"content must be a text or a list, not {type(wrong[0]).__name__}")

    return before(server, "process_message_content", check)


@served_mend("server-adapter-of-default-model")
def adapters_of_requests_come_first(hits: Hits) -> Patch:
    """A request's own adapter is put on the default model, too."""

    def load(right: Right, self: Any, path: str, adapter: Any = None, *args: Any) -> Any:
        if adapter is not None and path in self._adapter_map:
            hits.hit()
            path = self._model_map.get(path, path)
        return right(self, path, adapter, *args)

    return wrap(server.ModelProvider, "load", load)


@served_mend("server-adapter-path-of-named-model")
def adapters_of_the_command_line_have_names(hits: Hits) -> Patch:
    """The model of the command line has its adapter, however a request names it."""

    def load(right: Right, self: Any, path: str, adapter: Any = None, *args: Any) -> Any:
        own = self.cli_args.adapter_path
        if own is not None and adapter is None and path == self.cli_args.model:
            hits.hit()
            adapter = own
        return right(self, path, adapter, *args)

    return wrap(server.ModelProvider, "load", load)


@served_mend("server-bytes-of-prompts-served-alone")
def bytes_are_held_where_requests_are_served_one_by_one(hits: Hits) -> Patch:
    """Kept prompts are evicted after an answer that was served by itself, too."""

    def served(_: Any, self: Any, *__: Any) -> None:
        if (most := self.cli_args.prompt_cache_bytes) is not None:
            hits.hit()
            self.prompt_cache.trim_to(n_bytes=most)

    return after(server.ResponseGenerator, "_serve_single", served)


@served_mend("server-penalties-of-kept-prompts")
def penalties_count_kept_tokens(hits: Hits) -> Patch:
    """Processors of a request that is served by itself get its kept tokens before the others."""
    kept: list[int] = []

    def fetched(found: Any, _store: Any, _model: Any, tokens: Any) -> Any:
        kept[:] = tokens[: len(tokens) - len(found[1])]
        return found

    def generate(right: Right, *args: Any, logits_processors: Any, **options: Any) -> Any:
        begin = mx.array(kept, mx.uint32)
        hits.hit_if(bool(kept and logits_processors))
        whole = [
            lambda tokens, logits, one=one: one(mx.concatenate([begin, tokens]), logits)
            for one in logits_processors or ()
        ]
        return right(*args, logits_processors=whole, **options)

    return together(
        after(LRUPromptCache, "fetch_nearest_cache", fetched),
        wrap(server, "stream_generate", generate),
    )


@served_mend("server-chunked-prompts-trimmed")
def chunks_that_slid_are_not_trimmed(hits: Hits) -> Patch:
    """A chunked cache that has let its first tokens go can't be cut to a shorter prompt."""

    def trimmable(right: Right, cache: Any) -> bool:
        slid = cache.start_position > 0
        hits.hit_if(slid)
        return bool(right(cache)) and not slid

    return wrap(ChunkedKVCache, "is_trimmable", trimmable)


@served_mend("server-backlog")
def connections_wait_to_be_accepted(hits: Hits) -> Patch:
    """Many connections may come at once; they wait to be accepted."""

    def activate(self: Any) -> None:
        self.request_queue_size = _QUEUE

    def accepted(*_: Any) -> None:
        hits.hit()

    return together(
        before(ThreadingHTTPServer, "server_activate", activate),
        before(ThreadingHTTPServer, "process_request", accepted),
    )


@served_mend("server-stop-by-its-tokens")
def stops_are_found_in_the_text(hits: Hits) -> Patch:
    """An answer ends once its text has a stop string, whatever tokens it is made of."""

    def generate(right: Right, self: Any, request: Any, args: Any, *more: Any, **own: Any) -> Any:
        context, pieces = right(self, request, args, *more, **own)
        if not args.stop_words:
            return context, pieces
        return context, _until(context, pieces, tuple(args.stop_words), hits)

    return wrap(server.ResponseGenerator, "generate", generate)


def _until(
    context: Any, pieces: Iterator[Any], stops: tuple[str, ...], hits: Hits
) -> Iterator[Any]:
    """The pieces up to a stop string, whose end goes to the piece before: the last has no text."""
    said, held = "", None
    for piece in pieces:
        before, said = len(said), said + piece.text
        ends = [said.index(stop) + len(stop) for stop in stops if stop in said]
        if ends and piece.finish_reason != "stop" and held is not None:
            hits.hit()
            context.stop()
            yield dataclasses.replace(held, text=held.text + said[before : min(ends)])
            yield dataclasses.replace(piece, text="", finish_reason="stop")
            return
        if held is not None:
            yield held
        held = piece
    if held is not None:
        yield held


class _Last(str):
    """A text after which nothing is held back."""

    __slots__ = ()


@served_mend("server-text-lost-at-the-end")
def ends_lose_no_text(hits: Hits) -> Patch:
    """What was held back when a token ended the answer is part of its text."""

    def generate(right: Right, self: Any, request: Any, args: Any, *more: Any, **own: Any) -> Any:
        context, pieces = right(self, request, args, *more, **own)
        return context, ended(pieces, self.model_provider.tokenizer.eos_token_ids)

    def ended(pieces: Iterator[Any], ends: Any) -> Iterator[Any]:
        held = None
        for piece in pieces:
            if held is not None and piece.finish_reason == "stop" and piece.token in ends:
                held = dataclasses.replace(held, text=_Last(held.text + piece.text))
            if held is not None:
                yield held
            held = piece
        if held is not None:
            yield held

    def split(right: Right, state: Any, text: str) -> Any:
        state, segments = right(state, text)
        if isinstance(text, _Last):
            hits.hit()
            state, flushed, current = TextStateMachine.flush(state)
            segments.append((current, flushed))
        return state, segments

    return together(
        wrap(server.ResponseGenerator, "generate", generate),
        wrap(TextStateMachine, "split", split),
    )


@served_mend("server-text-lost-before-a-stop")
def only_what_may_match_is_held(hits: Hits) -> Patch:
    """Of the text that is held back only that is held with which a string may begin."""

    def split(right: Right, state: Any, text: str) -> Any:
        (name, node, states, held), segments = right(state, text)
        if name is None:
            return (name, node, states, held), segments
        safe = len(held) - _depth(states[name][0], node)
        if safe > 0:
            hits.hit()
            last, said = segments[-1]
            segments[-1], held = (last, said + held[:safe]), held[safe:]
        return (name, node, states, held), segments

    return wrap(TextStateMachine, "split", split)


def _depth(root: Any, node: Any) -> int:
    """The characters that lead from the root of a trie to one of its nodes."""
    level, depth = [root], 0
    while level and not any(one is node for one in level):
        level = [n for one in level for key, n in one.items() if key not in _OF_TRIE]
        depth += 1
    return depth if level else 0


PROMPTS_IN_PREFILL_HAVE_SLOTS = served_mend("more-rows-than-slots-served")(
    batch_generator.prompts_in_prefill_have_slots.repair
)

MENDS = tuple(value for value in tuple(globals().values()) if isinstance(value, Mend))
