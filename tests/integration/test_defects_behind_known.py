"""A defect planted behind a known one of a real family is found; without mends nobody sees it.

By day one pair of each kind: of each library one with a key of a fault and one with a function, one
with the single stream's own; the others are nightly.
"""

import contextlib
import dataclasses
import functools
import importlib
from typing import NamedTuple

import mlx.core as mx
import pytest

from conformance.app.pytest_plugin.setup import make_setup
from conformance.app.run_settings import Settings
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import before, wrap
from conformance.core.verdict import CaseId
from conformance.power.faults import with_faults
from conformance.power.faults.mlx_lm.tools import padding_as
from conformance.reference.family_store import FamilyStore
from conformance.reference.oracle_key import oracle_key
from conformance.run.mending import Mending
from conformance.run.session import Session


def third_rows_padding_is_seen(hits):
    """The mask of the third row alone is made without its padding."""
    return padding_as(lambda padding: mx.where(mx.arange(padding.size) == 2, 0, padding), hits)


def bound_is_ignored(hits):
    """The generator of mlx-lm takes ``max_kv_size`` and bounds nothing."""

    def init(right, self, *args, max_kv_size=None, **options):
        hits.hit_if(max_kv_size)
        right(self, *args, **options)

    return wrap(importlib.import_module("mlx_lm.generate").BatchGenerator, "__init__", init)


def negative_sizes_lose_their_sign(hits):
    """The generator of mlx-lm takes -1 for 1."""

    def init(right, self, *args, **options):
        wrong = [name for name in options if name.endswith("_size") and (options[name] or 0) < 0]
        hits.hit_if(wrong)
        right(self, *args, **{**options, **{name: -options[name] for name in wrong}})

    return wrap(importlib.import_module("mlx_lm.generate").BatchGenerator, "__init__", init)


def rows_that_join_forget_their_prompt(hits):
    """Penalties and grammars of a row that joins others count from its last token on."""

    def forget(batch, other):
        if batch.uids:
            hits.hit_if(any(len(tokens) > 1 for tokens in other.token_context))
            other.token_context = [tokens[-1:] for tokens in other.token_context]

    return before(_ar().GenerationBatch, "extend", forget)


def refused_calls_leave_a_request(hits):
    """A call that is refused leaves the first of its prompts in the queue."""

    def insert(right, self, prompts, *args, **options):
        try:
            return right(self, prompts, *args, **options)
        except ValueError:
            hits.hit()
            queue = self._unprocessed_sequences
            queue.append((self.uid_count, [1], 1, dict(options["prompt_kwargs"][0]), None, None))
            raise

    return wrap(_ar().BatchGenerator, "insert", insert)


def two_bits_alone(hits):
    """``generate_step`` keeps keys and values in two bits, whatever it is asked for."""

    def generate_step(right, *args, **options):
        if options.get("kv_bits") is None:
            return right(*args, **options)
        hits.hit()
        return right(*args, **{**options, "kv_bits": 2})

    return wrap(_ar(), "generate_step", generate_step)


def _ar():
    return importlib.import_module("mlx_vlm.generate.ar")


class Pair(NamedTuple):
    """A known defect, a case that shows it, and what is planted: a fault's key or a function.

    ``only`` are the schedules that are played, where the defect shows in few of many. In a single
    stream it is planted around the library's own.
    """

    known: str
    case: str
    planted: object
    only: tuple[str, ...] = ()
    alone: bool = False
    seed: int = 0


# The cheapest of each kind first.
PAIRS = [
    Pair("batch-generator-sizes", "mlx_lm/llama/invalid", negative_sizes_lose_their_sign),
    Pair("gemma2-mask-of-kv-heads", "mlx_lm/gemma2/ragged", "mlx_lm/B4.offset-of-row-0"),
    Pair(
        "offset-of-rows-as-one-number",
        "mlx_vlm/gpt_bigcode/early_finish",
        "mlx_vlm/F15.max-tokens-of-another-row",
    ),
    Pair("insert-lists-of-other-lengths", "mlx_vlm/llama/invalid", refused_calls_leave_a_request),
    Pair("afm7-kv-reuse-offset", "mlx_lm/afm7/ragged", third_rows_padding_is_seen),
    Pair("bounded-cache-keep", "mlx_lm/qwen3/window", bound_is_ignored),
    Pair("server-exact-prompt", "mlx_lm/llama/kept", "mlx_lm/F5.cut-one-token-too-late"),
    Pair("finished-caches-hold-the-batch", "mlx_lm/llama/kept", "mlx_lm/A10.slices-hold-the-batch"),
    Pair(
        "mamba-padded-state", "mlx_lm/mamba/early_finish", "mlx_lm/A9.filter-keeps-the-first-states"
    ),
    Pair("mamba-padded-state", "mlx_lm/mamba/samplers", "mlx_lm/D8.history-of-another-row"),
    Pair("penalty-of-last-token", "mlx_vlm/llama/samplers", "mlx_vlm/F13.boundary-token-twice"),
    Pair(
        "recurrent-state-of-padded-rows",
        "mlx_vlm/mamba/structured",
        rows_that_join_forget_their_prompt,
    ),
    Pair(
        "recurrent-state-of-padded-rows",
        "mlx_vlm/mamba/staggered",
        "mlx_vlm/A9.state-of-another-row-on-join",
    ),
    Pair(
        "turboquant-start-of-longest-prompt",
        "mlx_vlm/llama/quantized",
        "mlx_vlm/B21.turbo-quantized-twice",
        only=("start_beside", "start_above_joins", "start_below_joins"),
    ),
    Pair(
        "kv-policy-alone-and-batched",
        "mlx_vlm/llama/quantized",
        two_bits_alone,
        only=("alone_turbo", "alone_start"),
        alone=True,
    ),
    Pair("positions-of-padding", "mlx_vlm/glm4v/ragged", "mlx_vlm/C4.mrope-columns-at-prefill"),
    Pair(
        "unlimited-ocr-window-in-batches",
        "mlx_vlm/unlimited_ocr/equal_length",
        "mlx_vlm/B13.embeddings-of-another-row",
    ),
    Pair("requests-without-work", "mlx_vlm/llama/invalid", refused_calls_leave_a_request),
    Pair("generator-takes-any-size", "mlx_vlm/llama/invalid", refused_calls_leave_a_request),
    Pair(
        "qwen3-vl-features-of-first-row",
        "mlx_vlm/qwen3_vl/images_together",
        "mlx_vlm/C2.image-of-another-row",
    ),
    Pair(
        "media-arrays-over-rows",
        "mlx_vlm/gemma3/images_together",
        "mlx_vlm/C3.last-image-token-dropped",
    ),
    Pair(
        "hy-v4-indexer-of-first-length",
        "mlx_vlm/hy_v4/threads",
        "mlx_vlm/B13.embeddings-of-another-row",
        seed=4,
    ),
]


class Played(NamedTuple):
    """A case as released, with its known defects mended, and how often the planted code ran."""

    released: object
    mended: object
    hits: int


@pytest.fixture(scope="module")
def setup():
    return make_setup(Settings(engines=("*",)))


@pytest.fixture(scope="module")
def play(setup, tmp_path_factory):
    """Plays a pair's case, with what it plants or without."""
    store = FamilyStore(tmp_path_factory.mktemp("families"), oracle_key)

    @functools.cache
    def played(pair, *, planting):
        case = CaseId.parse(f"{pair.case}/float32/{pair.seed}")
        hits = Hits()
        registry = planted(setup.registry, pair, hits) if planting else setup.registry
        session = Session(registry, store=store)
        known = setup.expectations
        released = known.apply(session.run(case, only=pair.only))
        mended = Mending(session).play(case, released, *known.to_mend(released))
        return Played(released, known.apply(mended), hits.count)

    return played


def planted(registry, pair, hits):
    """The registry with an engine, or a library's single stream, that has the pair's defect."""
    key = pair.planted
    inject = with_faults(registry).faults[key].inject if isinstance(key, str) else key
    name = pair.case.split("/")[0]
    engine = registry.engines[name]
    if pair.alone:
        library = with_defect_alone(registry.libraries[engine.library], inject, hits)
        return dataclasses.replace(
            registry, libraries={**registry.libraries, engine.library: library}
        )
    wrong = with_defect(engine, inject, hits)
    return dataclasses.replace(registry, engines={**registry.engines, name: wrong})


def with_defect(engine, inject, hits):
    """The engine, in whose runs the defect is, also while the library is mended."""

    class Wrong(engine):
        def __init__(self, model, options):
            with contextlib.ExitStack() as stack:
                stack.enter_context(inject(hits))
                super().__init__(model, options)
                self._planted = stack.pop_all()

        def close(self):
            with self._planted:
                super().close()

    return Wrong


def with_defect_alone(library, inject, hits):
    """The library, whose own way to quantize a single stream has the defect."""

    class Wrong(type(library)):
        def policy_stream(self, *args, **options):
            with inject(hits):
                return super().policy_stream(*args, **options)

    return Wrong()


def new_findings(played):
    """What is found with the known defects mended."""
    return [f for f in played.mended.evidence if f.mended and not f.known and not f.verdict.good]


def kind(pair):
    """The library, and how the defect is planted."""
    return pair.case.split("/")[0], isinstance(pair.planted, str), pair.alone


DAY = [next(p for p in PAIRS if kind(p) == found) for found in dict.fromkeys(map(kind, PAIRS))]

each_pair = pytest.mark.parametrize(
    "pair",
    [
        pytest.param(
            p,
            id=f"{p.known}-{p.case.replace('/', '-')}-{i}",
            marks=[pytest.mark.nightly] * (p not in DAY),
        )
        for i, p in enumerate(PAIRS)
    ],
)


@each_pair
def test_the_known_defect_by_itself_is_right_once_mended(play, pair):
    found = play(pair, planting=False).mended
    assert found.expected, found.evidence[-1].what
    assert pair.known in found.mended.defects
    assert pair.known in found.known
    assert found.right_once_mended


@each_pair
def test_what_is_planted_behind_it_is_a_new_finding(play, pair):
    found = play(pair, planting=True)
    assert found.hits
    assert not found.mended.expected
    assert new_findings(found)
    assert "with that mended the case is" in found.mended.evidence[-1].what


@each_pair
def test_without_mends_it_hides(play, pair):
    found = play(pair, planting=True).released
    assert found.expected
    assert pair.known in found.known
    assert found.mended is None
