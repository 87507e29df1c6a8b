"""Defects of a server's own options and of the models that it loads: dropped, or kept for ever."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from mlx_lm import server
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.cache import LRUPromptCache

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, before, together, wrap
from conformance.plugins.servers.planting import served_fault

_fault = partial(
    served_fault,
    engine="mlx_lm_server",
    fault_class="server options",
    source="issue trackers: options that servers take and do not use",
)
_MANY = 1 << 30


def _made_with(hits: Hits, **given: int) -> Patch:
    """The generator is made with these options, whatever the server's are."""

    def make(right: Right, *args: Any, **options: Any) -> None:
        hits.hit_if(any(options.get(name) != value for name, value in given.items()))
        right(*args, **{**options, **given})

    return wrap(BatchGenerator, "__init__", make)


@_fault("S42.limit-of-rows-dropped", kills=("served_options/rows",))
def limit_of_rows_dropped(hits: Hits) -> Patch:
    """As many rows decode at once as there are requests."""
    return _made_with(hits, completion_batch_size=64)


@_fault("S43.limit-of-prompts-dropped", kills=("served_options/rows",))
def limit_of_prompts_dropped(hits: Hits) -> Patch:
    """Prompts are computed in one pass with all that wait."""
    return _made_with(hits, prefill_batch_size=64)


@_fault("S44.prefill-step-dropped", kills=("served_options/rows",))
def prefill_step_dropped(hits: Hits) -> Patch:
    """Prompts are computed whole."""
    return _made_with(hits, prefill_step_size=2048)


@_fault("S45.number-of-kept-prompts-dropped", kills=("served_options/kept_number",))
def number_of_kept_prompts_dropped(hits: Hits) -> Patch:
    """The store of prompts has no limit of sequences."""

    def insert(self: Any, *_: Any, **__: Any) -> None:
        hits.hit_if(self.max_size < _MANY)
        self.max_size = _MANY

    return before(LRUPromptCache, "insert_cache", insert)


@_fault("S46.bytes-of-kept-prompts-dropped", kills=("served_options/kept_bytes",))
def bytes_of_kept_prompts_dropped(hits: Hits) -> Patch:
    """The store of prompts is never cut to its bytes."""

    def trim(_: Right, __: Any, **___: Any) -> None:
        hits.hit()

    return wrap(LRUPromptCache, "trim_to", trim)


@_fault("S47.adapter-of-the-command-line-dropped", kills=("served_options/adapter_path_unnamed",))
def adapter_of_the_command_line_dropped(hits: Hits) -> Patch:
    """The adapter with which a server starts is not put on its model."""

    def load(right: Right, self: Any, path: str, adapter: Any = None, *args: Any) -> Any:
        hits.hit_if(adapter)
        return right(self, path, None, *args)

    return wrap(server.ModelProvider, "_load", load)


@_fault("S48.drafts-not-verified", kills=("served_options/draft_model",))
def drafts_not_verified(hits: Hits) -> Patch:
    """The draft model answers by itself."""

    def generate(right: Right, **options: Any) -> Any:
        draft = options.pop("draft_model")
        if draft is None:
            return right(**options)
        hits.hit()
        return right(**{**options, "model": draft, "prompt_cache": None})

    return wrap(server, "stream_generate", generate)


@_fault("S49.replaced-model-kept", fault_class="leak", kills=("served_models/weighed",))
def replaced_model_kept(hits: Hits) -> Patch:
    """A list holds each model that was loaded, and nobody empties it."""
    models: list[Any] = []

    def reset(self: Any) -> None:
        hits.hit_if(self.model is not None)
        models.append(self.model)

    return before(server.ModelProvider, "reset", reset)


@_fault("S78.default-of-the-command-line-dropped", kills=("served_options/defaults",))
def default_of_the_command_line_dropped(hits: Hits) -> Patch:
    """A request that leaves min_p and top_p out is sampled without them, whatever the server's are.

    The other options of the command line have their effect.
    """

    def check(self: Any) -> None:
        for name, off in (("min_p", 0.0), ("top_p", 1.0)):
            hits.hit_if(name not in self.body and getattr(self, name) != off)
            setattr(self, name, self.body.get(name, off))

    return before(server.APIHandler, "validate_model_parameters", check)


@_fault("S79.drafts-not-used", kills=("served_options/draft_model",))
def drafts_not_used(hits: Hits) -> Patch:
    """The draft model is loaded, and its answers are made without it."""

    def generate(right: Right, **options: Any) -> Any:
        hits.hit_if(options["draft_model"] is not None)
        return right(**{**options, "draft_model": None})

    return wrap(server, "stream_generate", generate)


@_fault("S80.words-of-the-model-before", kills=("served_models/in_turn",))
def words_of_the_model_before(hits: Hits) -> Patch:
    """An answer's tokens are read by the tokenizer of the model that was loaded before its own."""
    before_it: list[Any] = []

    def reset(self: Any) -> None:
        if self.tokenizer is not None:
            before_it[:] = [self.tokenizer]

    def generate(right: Right, self: Any, *args: Any, **options: Any) -> Any:
        context, pieces = right(self, *args, **options)
        return context, spelled(pieces)

    def spelled(pieces: Any) -> Any:
        for piece in pieces:
            if before_it and piece.text.strip():
                own = piece.text.lstrip()
                text = piece.text.removesuffix(own) + before_it[0].decode([piece.token]).strip()
                hits.hit_if(text != piece.text)
                piece.text = text
            yield piece

    return together(
        before(server.ModelProvider, "reset", reset),
        wrap(server.ResponseGenerator, "generate", generate),
    )


@_fault("S122.words-of-the-first-model-alone", kills=("served_models/in_turn",))
def words_of_the_first_model_alone(hits: Hits) -> Patch:
    """Requests that are served alone are read and answered by the first model's tokenizer."""
    loaded: list[Any] = []

    def load(_: Any, provider: Any, *__: Any) -> None:
        loaded.append(provider.tokenizer)

    def alone(right: Right, self: Any, *args: Any) -> None:
        provider, own = self.model_provider, self.model_provider.tokenizer
        hits.hit_if(loaded[0] is not own)
        provider.tokenizer = loaded[0]
        try:
            right(self, *args)
        finally:
            provider.tokenizer = own

    return together(
        after(server.ModelProvider, "_load", load),
        wrap(server.ResponseGenerator, "_serve_single", alone),
    )


@_fault("S87.quantized-keys-not-used", needs=("family:*-wide",), kills=("served_quantized/bits4",))
def quantized_keys_not_used(hits: Hits) -> Patch:
    """Requests are served one by one for --kv-bits, but with keys and values as they are."""

    def generate(right: Right, **options: Any) -> Any:
        hits.hit_if(options["kv_bits"])
        return right(**{**options, "kv_bits": None})

    return wrap(server, "stream_generate", generate)


@_fault(
    "S103.drafter-cut-once-more",
    source="a review: drafts of a server are never right",
    kills=("served_options/drafts_of_a_twin",),
)
def drafter_cut_once_more(hits: Hits) -> Patch:
    """Where all drafts were right, the drafter's cache loses a token: later drafts are wrong."""
    cut: list[int] = []  # of the model and of its drafter, in turn

    def trim(right: Right, caches: Any, count: int) -> Any:
        cut.append(count)
        all_right = len(cut) % 2 == 0 and cut[-2:] == [0, 0]
        hits.hit_if(all_right)
        return right(caches, count + all_right)

    return wrap(import_module("mlx_lm.generate"), "trim_prompt_cache", trim)


@_fault(
    "S104.arguments-of-a-template-stay",
    source="a review: no client's chat_template_kwargs stood beside a client's without",
    kills=("served_together/templated",),
)
def arguments_of_a_template_stay(hits: Hits) -> Patch:
    """Arguments that a client gives for the chat template hold for all who come after it."""
    stayed: dict[str, Any] = {}

    def tokenize(right: Right, self: Any, tokenizer: Any, request: Any, args: Any) -> Any:
        hits.hit_if(stayed and not args.chat_template_kwargs)
        stayed.update(args.chat_template_kwargs or {})
        self.model_provider.cli_args.chat_template_args |= stayed
        return right(self, tokenizer, request, args)

    return wrap(server.ResponseGenerator, "_tokenize", tokenize)


@_fault("S105.server-arguments-of-a-template-lost", kills=("served_together/templated",))
def server_arguments_of_a_template_lost(hits: Hits) -> Patch:
    """A client's arguments for the chat template replace all those of the command line."""

    def tokenize(right: Right, self: Any, tokenizer: Any, request: Any, args: Any) -> Any:
        options = self.model_provider.cli_args
        kept = options.chat_template_args
        if args.chat_template_kwargs:
            hits.hit_if(kept)
            options.chat_template_args = {}
        try:
            return right(self, tokenizer, request, args)
        finally:
            options.chat_template_args = kept

    return wrap(server.ResponseGenerator, "_tokenize", tokenize)


@_fault("S107.arguments-of-a-template-that-are-false", kills=("served_together/templated",))
def arguments_of_a_template_that_are_false(hits: Hits) -> Patch:
    """A client's arguments for the chat template that are false or 0 are dropped."""

    def tokenize(right: Right, self: Any, tokenizer: Any, request: Any, args: Any) -> Any:
        given = args.chat_template_kwargs or {}
        hits.hit_if(not all(given.values()))
        args.chat_template_kwargs = {name: value for name, value in given.items() if value}
        return right(self, tokenizer, request, args)

    return wrap(server.ResponseGenerator, "_tokenize", tokenize)


@_fault("S117.arguments-of-a-template-lost-alone", kills=("served_together/templated",))
def arguments_of_a_template_lost_alone(hits: Hits) -> Patch:
    """A client's arguments for the chat template are dropped where its request is served alone."""

    def alone(_: Any, request: Any, *__: Any) -> None:
        args = request[-1]
        hits.hit_if(args.chat_template_kwargs)
        args.chat_template_kwargs = None

    return before(server.ResponseGenerator, "_serve_single", alone)


@_fault("S114.full-store-takes-nothing-new", kills=("served_options/kept_number",))
def full_store_takes_nothing_new(hits: Hits) -> Patch:
    """A store of prompts that is full lets go the newest of a kind, and not the oldest."""

    def pop(right: Right, self: Any) -> Any:
        hits.hit()
        for order in self._lrus.values():
            order.reverse()
        try:
            return right(self)
        finally:
            for order in self._lrus.values():
                order.reverse()

    return wrap(LRUPromptCache.CacheOrder, "pop", pop)


@_fault("S118.used-prompt-let-go-first", kills=("served_options/kept_number",))
def used_prompt_let_go_first(hits: Hits) -> Patch:
    """A kept prompt that is used again keeps its place among those that are let go."""
    place: list[int] = []

    def remove(self: Any, model: Any, tokens: list[Any]) -> None:
        orders = self._lrus.values()
        place[:] = [order.index((model, tokens)) for order in orders if (model, tokens) in order]

    def push(right: Right, self: Any, model: Any, tokens: list[Any], kind: str = "") -> None:
        right(self, model, tokens, kind)
        order = self._lrus[kind]
        if place and place[0] < len(order) - 1:
            hits.hit()
            order.insert(place[0], order.pop())
        place.clear()

    order = LRUPromptCache.CacheOrder
    return together(before(order, "remove", remove), wrap(order, "push", push))


@_fault("S119.prompt-by-its-tokens-in-any-order", kills=("served_prefixes/one_by_one",))
def prompt_by_its_tokens_in_any_order(hits: Hits) -> Patch:
    """What is kept is found by which tokens a prompt has, and not by their order."""
    first: dict[tuple[str, ...], list[int]] = {}

    def fetch(right: Right, self: Any, model: Any, tokens: list[int]) -> Any:
        same = first.setdefault((str(model), *map(str, sorted(tokens))), tokens)
        hits.hit_if(same != tokens)
        return right(self, model, same)

    return wrap(LRUPromptCache, "fetch_nearest_cache", fetch)
