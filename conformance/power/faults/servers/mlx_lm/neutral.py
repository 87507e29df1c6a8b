"""Defects of values that look neutral, of a connection's reset, and of models by default."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from mlx_lm import server
from mlx_lm.models.cache import TokenBuffer

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, wrap
from conformance.plugins.servers.planting import served_fault

_fault = partial(
    served_fault,
    engine="mlx_lm_server",
    fault_class="server options",
    source="issue trackers: values that servers take for none, and requests for each other",
)


@_fault("S88.seed-of-zero-ignored", kills=("served_samplers",))
def seed_of_zero_ignored(hits: Hits) -> Patch:
    """A seed of 0 counts as none."""

    def serve(_: Any, request: Any, *__: Any) -> None:
        args = request[2]
        hits.hit_if(args.seed == 0)
        args.seed = args.seed or None

    return before(server.ResponseGenerator, "_serve_single", serve)


@_fault("S89.temperature-of-zero-overridden", kills=("served_options/defaults",))
def temperature_of_zero_overridden(hits: Hits) -> Patch:
    """A temperature of 0 counts as none: the server's own is taken."""

    def validate(handler: Any) -> None:
        default = handler.response_generator.cli_args.temp
        hits.hit_if(not handler.temperature and default)
        handler.temperature = handler.temperature or default

    return before(server.APIHandler, "validate_model_parameters", validate)


@_fault("S124.whole-temperature-taken-for-none", kills=("served_traffic/options",))
def whole_temperature_taken_for_none(hits: Hits) -> Patch:
    """A temperature that is written without a point counts as 0."""

    def validate(handler: Any) -> None:
        whole = handler.temperature and isinstance(handler.temperature, int)
        hits.hit_if(whole)
        handler.temperature = 0.0 if whole else handler.temperature

    return before(server.APIHandler, "validate_model_parameters", validate)


@_fault("S90.limit-capped-by-the-default", kills=("served_options/defaults",))
def limit_capped_by_the_default(hits: Hits) -> Patch:
    """No limit of a request is above that which counts where there is none."""

    def validate(handler: Any) -> None:
        default = handler.response_generator.cli_args.max_tokens
        hits.hit_if(handler.max_tokens > default)
        handler.max_tokens = min(handler.max_tokens, default)

    return before(server.APIHandler, "validate_model_parameters", validate)


_BLOCK = 256  # tokens


@_fault("S91.history-of-a-first-block", kills=("served_traffic/options",))
def history_of_a_first_block(hits: Hits) -> Patch:
    """Of a history that penalties count, all but its first block and its last token is lost."""

    def fetch(right: Right, buffer: Any, tokens: Any) -> Any:
        start = buffer._size
        found = right(buffer, tokens)
        if start > _BLOCK:
            hits.hit()
            found[_BLOCK:start] = 0
        return found

    return wrap(TokenBuffer, "update_and_fetch", fetch)


@_fault("S92.blank-of-a-text-stripped", kills=("served_text/byte_level",))
def blank_of_a_text_stripped(hits: Hits) -> Patch:
    """The text of a completion loses the blanks at its begin and end."""

    def handle(handler: Any) -> None:
        said = handler.body["prompt"]
        hits.hit_if(said != said.strip())
        handler.body["prompt"] = said.strip()

    return before(server.APIHandler, "handle_text_completions", handle)


@_fault("S93.reset-connection-decoded-on", kills=("served_leaves/reset",))
def reset_connection_decoded_on(hits: Hits) -> Patch:
    """A row whose client resets its connection, and does not close it, is decoded to its limit."""

    def stop(right: Right, context: Any) -> None:
        reset = isinstance(sys.exc_info()[1], ConnectionResetError)
        hits.hit_if(reset)
        if not reset:
            right(context)

    return wrap(server.GenerationContext, "stop", stop)


@_fault("S94.default-is-the-last-loaded", kills=("served_models/in_turn",))
def default_is_the_last_loaded(hits: Hits) -> Patch:
    """A request that names no model gets the one that was loaded last."""

    def load(_: Any, provider: Any, path: Any, *__: Any, **___: Any) -> None:
        hits.hit_if(provider._model_map["default_model"] != path)
        provider._model_map["default_model"] = path

    return after(server.ModelProvider, "_load", load)


@_fault("S96.stop-words-of-the-first-model", kills=("served_models/in_turn",))
def stop_words_of_the_first_model(hits: Hits) -> Patch:
    """Stop words are kept as tokens by their text alone: another model has those of the first."""
    first: dict[tuple[str, ...], Any] = {}

    def make(right: Right, generator: Any, key: Any, tokenizer: Any, words: Any) -> Any:
        found = first.setdefault(tuple(words), key)
        hits.hit_if(found != key)
        return right(generator, found, tokenizer, words)

    return wrap(server.ResponseGenerator, "_make_state_machine", make)


@_fault("S97.end-excluded", kills=("served_traffic/ends_one_by_one",))
def end_excluded(hits: Hits) -> Patch:
    """XTC, which excludes the likeliest tokens, may exclude what ends an answer."""

    def make(right: Right, *args: Any, **options: Any) -> Any:
        hits.hit_if(options.get("xtc_probability"))
        return right(*args, **{**options, "xtc_special_tokens": []})

    return wrap(server, "make_sampler", make)
