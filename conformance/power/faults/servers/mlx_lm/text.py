"""Defects of text: characters of several tokens that are cut, mixed up between rows, or lost."""

from __future__ import annotations

import unicodedata
from functools import partial
from typing import Any

from mlx_lm import server
from mlx_lm.generate import StopSequences
from mlx_lm.tokenizer_utils import (
    BPEStreamingDetokenizer,
    SPMStreamingDetokenizer,
    TokenizerWrapper,
)

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, replace, together, wrap
from conformance.plugins.servers.planting import served_fault

_fault = partial(
    served_fault,
    engine="mlx_lm_server",
    fault_class="server text",
    source="issue trackers: characters of several tokens in streams",
    kills=("served_text/byte_level",),
)


@_fault("S50.cut-bytes-in-one-place")
def cut_bytes_in_one_place(hits: Hits) -> Patch:
    """The bytes of a character that has begun wait in one place for all clients."""
    waiting = [""]

    def use(self: Any, *_: Any) -> None:
        hits.hit_if(self._unflushed != waiting[0])
        self._unflushed = waiting[0]

    def keep(_: Any, self: Any, *__: Any) -> None:
        waiting[0] = self._unflushed

    return together(
        before(BPEStreamingDetokenizer, "add_token", use),
        after(BPEStreamingDetokenizer, "add_token", keep),
    )


@_fault("S51.detokenizer-of-all-rows")
def detokenizer_of_all_rows(hits: Hits) -> Patch:
    """All rows have one detokenizer, which is reset when a request comes."""

    def detokenizer(self: Any) -> Any:
        hits.hit()
        self._detokenizer.reset()
        return self._detokenizer

    return replace(TokenizerWrapper, "detokenizer", property(detokenizer))


@_fault("S52.character-cut-in-a-stream")
def character_cut_in_a_stream(hits: Hits) -> Patch:
    """Each token is decoded by itself: a character of several tokens is never whole."""

    def flush(_: Any, self: Any, *__: Any) -> None:
        hits.hit_if(self._unflushed)
        self.text += self._decode_bytes(self._unflushed)
        self._unflushed = ""

    return after(BPEStreamingDetokenizer, "add_token", flush)


@_fault("S53.last-bytes-dropped", kills=("served_text/byte_fallback",))
def last_bytes_dropped(hits: Hits) -> Patch:
    """Of a character that the limit cuts nothing is said."""

    def drop(self: Any) -> None:
        hits.hit_if(self._unflushed)
        self._unflushed = b""

    return before(SPMStreamingDetokenizer, "finalize", drop)


@_fault("S54.stop-string-by-its-first-piece", kills=("served_text/byte_level",))
def stop_string_by_its_first_piece(hits: Hits) -> Patch:
    """An answer ends by the first piece of a stop string, which other characters have, too."""

    def make(_: Right, tokenizer: Any, words: Any) -> Any:
        firsts = [tokenizer.encode(word, add_special_tokens=False)[:1] for word in words or ()]
        hits.hit_if(firsts)
        return StopSequences([*((end,) for end in tokenizer.eos_token_ids), *firsts])

    return wrap(server, "make_stop_sequences", make)


@_fault("S77.marks-dropped-from-whole-answers")
def marks_dropped_from_whole_answers(hits: Hits) -> Patch:
    """An answer in one piece has letters without their combining marks."""

    def respond(right: Right, self: Any, text: str, *args: Any, **more: Any) -> Any:
        if not self.stream:
            bare = "".join(char for char in text if not unicodedata.combining(char))
            hits.hit_if(bare != text)
            text = bare
        return right(self, text, *args, **more)

    return wrap(server.APIHandler, "generate_response", respond)


@_fault("S130.arguments-of-plain-letters", kills=("served_tools",))
def arguments_of_plain_letters(hits: Hits) -> Patch:
    """The arguments of a call are sent as ASCII: a question mark stands for each other letter."""

    def formatted(found: Any, *_: Any) -> Any:
        function = found["function"]
        plain = function["arguments"].encode("ascii", "replace").decode()
        hits.hit_if(plain != function["arguments"])
        function["arguments"] = plain
        return found

    return after(server.ToolCallFormatter, "_format", formatted)
