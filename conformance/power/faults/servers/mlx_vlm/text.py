"""Defects of text: characters of several tokens that are cut, or mixed up between rows."""

from __future__ import annotations

import unicodedata
from functools import partial
from typing import Any

from mlx_vlm.tokenizer_utils import _ServerTokenStreamer

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, wrap
from conformance.plugins.servers.planting import served_fault

_fault = partial(
    served_fault,
    engine="mlx_vlm_server",
    fault_class="server text",
    source="issue trackers: characters of several tokens in streams",
    kills=("served_text/byte_level",),
)


@_fault("S50.decoder-of-all-clients")
def decoder_of_all_clients(hits: Hits) -> Patch:
    """The bytes of a character that has begun wait in one decoder for all clients."""
    decoders: list[Any] = []

    def made(_: Any, self: Any, *__: Any) -> None:
        decoders.append(self._decoder)
        hits.hit_if(len(decoders) > 1)
        self._decoder = decoders[0]

    return after(_ServerTokenStreamer, "__init__", made)


@_fault("S52.character-cut-in-a-stream")
def character_cut_in_a_stream(hits: Hits) -> Patch:
    """Each token is decoded by itself: a character of several tokens is never whole."""

    def text(right: Right, self: Any, token: int) -> Any:
        said = right(self, token)
        cut = self._decoder.decode(b"", final=True)
        hits.hit_if(cut)
        return said + cut

    return wrap(_ServerTokenStreamer, "_bpe_text_for_token", text)


@_fault("S53.last-bytes-dropped")
def last_bytes_dropped(hits: Hits) -> Patch:
    """Of the last token, whose character the limit cuts, nothing is said."""

    def advance(right: Right, self: Any, token: int, reason: Any) -> Any:
        said = right(self, token, reason)
        lost = reason == "length" and said.endswith("\ufffd")
        hits.hit_if(lost)
        return "" if lost else said

    return wrap(_ServerTokenStreamer, "advance", advance)


@_fault("S77.pieces-normalised")
def pieces_normalised(hits: Hits) -> Patch:
    """A letter and its combining mark come as one character."""

    def advance(right: Right, self: Any, token: int, reason: Any) -> Any:
        said = right(self, token, reason)
        made = unicodedata.normalize("NFC", said)
        hits.hit_if(made != said)
        return made

    return wrap(_ServerTokenStreamer, "advance", advance)
