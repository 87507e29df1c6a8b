"""Parts of mlx-vlm's generator: quantized caches, fused decoding, defaults."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import mlx.core as mx

from conformance.backend.expected_rows import Asked, Biased
from conformance.backend.stub_model import VOCAB
from conformance.core.engine_options import PrefixCaching
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.prefix_caching import make_manager
from conformance.power.properties.mlx_vlm.generator.expected_steps import Limits
from conformance.power.properties.mlx_vlm.generator.generators import Stops, Way, insert, make

ar: Any = compat.part("generate.ar")
caches: Any = compat.part("models.cache")

_FILE = "mlx_vlm/generate/ar.py"
# The defaults of a generator.
_UNSAID: dict[str, Any] = {
    "max_tokens": 2048,
    "completion_batch_size": 32,
    "prefill_batch_size": 8,
    "prefill_step_size": 2048,
    "compute_logprobs": True,
    "top_logprobs_k": 0,
    "greedy_sampling": True,
    "logits_processors": [],
    "kv_group_size": 64,
    "kv_quant_scheme": "uniform",
    "quantized_kv_start": 5000,
    **dict.fromkeys(("kv_bits", "kv_key_bits", "kv_value_bits", "kv_key_scheme")),
    **dict.fromkeys(("kv_value_scheme", "draft_model", "draft_kind", "draft_block_size")),
    **dict.fromkeys(("apc_manager", "apc_mode")),
}


def generator_part_properties() -> list[Property]:
    """The properties of quantized caches, fused decoding and defaults."""
    quantized = (
        *("BatchGenerator.__init__", "BatchGenerator._next", "BatchGenerator._build_mixed*"),
        *("PromptProcessingBatch.__init__", "_make_cache*"),
    )
    fused = ("GenerationBatch.*",)
    return [
        Property("generator: quantized caches", _FILE, quantized, _quantized),
        Property("generator: fused decoding", _FILE, fused, _fused),
        Property("generator: defaults", _FILE, ("BatchGenerator.*", *fused), _defaults),
    ]


def _described(cache: Any) -> tuple[Any, ...]:
    names = ("bits", "group_size", "key_bits", "value_bits")
    return (type(cache).__name__, *(getattr(cache, name, None) for name in names))


def _quantized() -> Iterator[str]:
    """Options reach the caches of prompts, with and without a kept prefix."""
    ways: list[dict[str, Any]] = [
        {"kv_bits": 8, "quantized_kv_start": 0},
        {"kv_bits": 4, "kv_group_size": 32},
        {"kv_bits": 3.5, "quantized_kv_start": 0},
        {"kv_bits": 4, "kv_quant_scheme": "turboquant", "kv_key_bits": 3, "quantized_kv_start": 0},
        {
            "kv_bits": 4,
            "kv_quant_scheme": "turboquant",
            "kv_value_bits": 2,
            "quantized_kv_start": 4,
        },
        {"kv_bits": 4, "kv_quant_scheme": "turboquant"},
        {"kv_bits": 4, "kv_quant_scheme": "turboquant", "quantized_kv_start": 12},
    ]
    prompt = Asked(list(range(11)), 2)
    way = Way(Limits(2, 1, 2), windows=(None, None, None))
    for options in ways:
        manager = make_manager(PrefixCaching(blocks=64, block_size=4))
        generator, model = make(way, apc_manager=manager, **options)
        insert(generator, [prompt])
        generator.next()
        start = {"quantized_kv_start": 5000, **options}
        want = ar._make_cache(model, [0], prefill_length=11, **start)
        batch = generator._prompt_batch
        if [*map(_described, batch.prompt_cache)] != [*map(_described, want)]:
            yield f"with {options} there are {[*map(_described, batch.prompt_cache)]}"
        generator.close()
    mixed = {"kv_bits": 4, "kv_key_scheme": "uniform", "kv_value_scheme": "turboquant"}
    for options in (mixed, {**mixed, "kv_key_scheme": "turboquant", "kv_value_scheme": "uniform"}):
        generator, _ = make(way, **options)
        insert(generator, [prompt])
        try:
            generator.next()
        except NotImplementedError:
            continue
        yield f"{options} is taken"
    yield from _quantized_again(way, prompt)


def _quantized_again(way: Way, prompt: Asked) -> Iterator[str]:
    """The same for rows with kept prefixes, for which the library made plain caches earlier."""
    ways: list[dict[str, Any]] = [
        {"kv_bits": 8},
        {"kv_bits": 4, "kv_group_size": 32},
        {"kv_bits": 4, "kv_quant_scheme": "turboquant", "kv_key_bits": 3},
        {"kv_bits": 4, "kv_quant_scheme": "turboquant", "kv_value_bits": 2},
        {"kv_bits": 3.5},
    ]
    for options in ways:
        manager = make_manager(PrefixCaching(blocks=64, block_size=4))
        first, _ = make(way, apc_manager=manager)
        insert(first, [prompt])
        while first.has_work:
            first.next()
        again, model = make(way, apc_manager=manager, **options)
        insert(again, [prompt])
        again.next()
        batch = again._prompt_batch
        want = ar._make_cache(model, [0], prefill_length=11, **options)
        found = [*map(_described, batch.prompt_cache)]
        if batch._cached_tokens_per_row != [8]:
            yield f"with {options} {batch._cached_tokens_per_row} tokens are there"
        elif found != [*map(_described, want)]:
            yield f"with {options} and a kept prefix there are {found}"
    mixed = {"kv_bits": 4, "kv_key_scheme": "uniform", "kv_value_scheme": "turboquant"}
    again, _ = make(way, apc_manager=manager, **mixed)
    insert(again, [prompt])
    try:
        again.next()
    except NotImplementedError:
        return
    yield f"{mixed} is taken where a prefix is there"


class _Fused:
    """A model with its own greedy decoding."""

    def __init__(self, *, able: bool, column: bool, supports: bool | None) -> None:
        self._able, self._column = able, column
        self.given: list[tuple[Any, ...]] = []
        self.plain = 0
        if supports is not None:
            self.supports_fused_greedy_logits_processors = lambda _: supports

    def fused_greedy_decode(self, tokens: mx.array, cache: Any, **options: Any) -> Any:
        self.given.append((tokens.shape, cache, sorted(options)))
        if not self._able:
            return None
        return tokens + 1 if self._column else tokens[:, 0] + 1

    def __call__(self, tokens: mx.array, **_: Any) -> mx.array:
        self.plain += 1
        return -mx.abs(mx.arange(VOCAB)[None, None] - (tokens[..., None] + 1)).astype(mx.float32)


def _fused() -> Iterator[str]:
    """Fused decoding is used only if just the best token is requested and processors allow it."""
    both = (False, True)
    for able, column, greedy, logprobs in itertools.product(both, both, both, both):
        for top, processors, supports in (
            (0, 0, None),
            (1, 0, None),
            (0, 1, None),
            (0, 1, True),
            (0, 1, False),
        ):
            model = _Fused(able=able, column=column, supports=supports)
            own = [[lambda _, logits: logits], None] if processors else [None, None]
            batch = ar.GenerationBatch(
                SimpleNamespace(language_model=model),
                [7, 9],
                mx.array([2, 5]),
                ["cache"],
                lambda logprobs: mx.argmax(logprobs, axis=-1),
                lambda _: False,
                [3, 4],
                top_logprobs_k=top,
                greedy_sampling=greedy,
                logits_processors=own,
            )
            if not batch.compute_logprobs:
                yield "by default no logprobs are computed"
            batch.compute_logprobs = logprobs
            batch._rope_deltas = mx.zeros((2, 1))
            batch._eval_pending_state = lambda: None
            batch.prompt_cache = []
            tokens = [[one.token for one in batch.next()] for _ in range(2)]
            asked = greedy and not logprobs and not top and not (processors and not supports)
            names = ["logits_processors", "rope_deltas"] if processors else ["rope_deltas"]
            given: list[tuple[Any, ...]] = [((2, 1), [], names)] * 2 if asked else []
            plain = 0 if asked and able else 2
            if tokens != [[2, 5], [3, 6]] or model.given != given or model.plain != plain:
                what = f"able {able}, greedy {greedy}, logprobs {logprobs}, top {top}"
                yield f"{what}, processors {processors} {supports}: {tokens}, {model.given}"


def _defaults() -> Iterator[str]:
    """Defaults: the number of tokens, the best token, processors for all rows."""
    prompts = [Asked([1, 2, 3], 4), Asked([4], 4)]
    way = Way(Limits(4, 4, 2))
    counts = {}
    for name, given in {"by the generator": None, "by a number": 2}.items():
        generator, _ = make(way, max_tokens=3, logits_processors=[Biased(1)])
        kwargs = [{"inputs_embeds": mx.array(one.embeddings()[None])} for one in prompts]
        queued = generator.insert([one.tokens for one in prompts], given, prompt_kwargs=kwargs)
        processors = [row[4] for row in generator.unprocessed_prompts]
        if queued != [0, 1] or [len(own) for own in processors] != [1, 1]:
            yield f"rows {queued} have the processors {processors}"
        counts[name] = [row[2] for row in generator.unprocessed_prompts]
        for wrong in ({"logits_processors": [None]}, {"thinking_budget_criteria": [None]}):
            try:
                generator.insert([[1], [2]], 3, **wrong)
            except ValueError:
                continue
            yield f"{wrong} of two rows is taken"
    if counts != {"by the generator": [3, 3], "by a number": [2, 2]}:
        yield f"rows end after {counts}"
    plain = ar.BatchGenerator("model", SimpleNamespace(stopping_criteria=Stops()))
    if (said := {name: getattr(plain, name) for name in _UNSAID}) != _UNSAID:
        yield f"by default a generator has {said}"
    empty = ar.GenerationBatch.empty(None, "sampler", "stop")
    if (empty.compute_logprobs, empty.top_logprobs_k, empty.greedy_sampling) != (True, 0, False):
        yield "an empty batch has other defaults"
    if empty.next() != [] or len(empty) or empty.cache_states() != []:
        yield "an empty batch gives something"
    for name, sampler, greedy, want in (
        ("none", None, False, True),
        ("its own", max, False, False),
        ("greedy", max, True, True),
    ):
        said = {"greedy_sampling": True} if greedy else {}
        generator, _ = make(way, sampler=sampler, **said)
        if generator.greedy_sampling != want or generator._generation_batch.greedy_sampling != want:
            yield f"with {name} sampler it is greedy: {generator.greedy_sampling}"
    drafted, _ = make(Way(Limits(4, 4, 2), top=2), draft_model=object(), draft_kind="kind")
    if drafted.compute_logprobs or drafted.top_logprobs_k:
        yield "logprobs are computed of drafts"
    refused = make(way, apc_manager=make_manager(PrefixCaching()))[0]
    if refused.apc_manager is None or refused.apc_mode != "block":
        yield f"the mode of prefix caching is {refused.apc_mode}"
