"""The prefix cache as the engine sets it up, and faults that the scenario must see."""

from dataclasses import replace
from types import SimpleNamespace

import mlx.core as mx
import pytest
from miniatures.vision import findings, load_subject
from mlx_vlm import apc

from conformance.core.engine_options import PrefixCaching
from conformance.core.errors import Unsupported
from conformance.core.schedule import Media, Request
from conformance.core.verdict import Verdict
from conformance.plugins.mlx_vlm import prefix_caching
from conformance.plugins.mlx_vlm.engine import MlxVlmEngine
from conformance.plugins.mlx_vlm.inputs import inputs_of
from conformance.run.judging.judge import brief_for
from conformance.run.runner import play
from conformance.scenarios.prefix_caching import PREFIX_CACHING


@pytest.fixture(scope="module")
def llama():
    """Its caches are cut into blocks."""
    return load_subject("llama")


@pytest.fixture(scope="module")
def lfm2():
    """Its caches are kept whole."""
    return load_subject("lfm2")


@pytest.fixture(scope="module")
def shown():
    """A family with images whose caches are kept whole."""
    return load_subject("gemma3")


def test_the_manager_holds_what_was_asked_for_and_nothing_on_disk():
    made = prefix_caching.make_manager(PrefixCaching(blocks=5, block_size=4, snapshots=3))
    assert (made.num_blocks, made.block_size, made._exact_cache_max) == (5, 4, 3)
    assert made.disk is None
    assert made.memory_reserve_bytes == 0


def test_a_release_without_a_bound_in_bytes_still_bounds_the_number_of_snapshots(monkeypatch):
    old = SimpleNamespace(_exact_cache_max=2)
    monkeypatch.setattr(apc, "from_env", lambda namespace=None, overrides=None: old)
    made = prefix_caching.make_manager(PrefixCaching(snapshots=3))
    assert (made._exact_cache_max, prefix_caching.max_bytes(made)) == (3, None)
    with pytest.raises(Unsupported, match="does not bound its bytes"):
        prefix_caching.make_manager(PrefixCaching(times_first=0))


def test_a_release_without_settings_is_given_the_numbers_and_keeps_no_files(monkeypatch):
    monkeypatch.setattr(apc, "from_env", lambda namespace=None: None)
    manager = lambda blocks, block_size: SimpleNamespace(sizes=(blocks, block_size))  # noqa: E731
    monkeypatch.setattr(apc, "APCManager", manager)
    made = prefix_caching.make_manager(PrefixCaching(blocks=5, block_size=4, snapshots=3))
    assert (made.sizes, made._exact_cache_max, made.exact_cache_guard_tokens) == ((5, 4), 3, 1)
    with pytest.raises(Unsupported, match="from the environment alone"):
        prefix_caching.make_manager(PrefixCaching(disk=True))


def test_used_bytes_are_those_of_blocks_that_are_not_free():
    manager = prefix_caching.make_manager(PrefixCaching(blocks=3, block_size=2))
    keys = [mx.zeros((1, 1, 5, 2))]
    used = manager.store_kv_blocks([1, 2, 3, 4, 5], keys, keys)
    assert prefix_caching.used_bytes(manager) == 2 * 2 * (2 * 2 * 4)
    manager.release(used[:1])
    assert prefix_caching.used_bytes(manager) == 2 * (2 * 2 * 4)
    manager.release(used[1:])
    assert prefix_caching.used_bytes(manager) == 0


def test_a_model_whose_caches_cannot_be_restored_is_refused(llama, monkeypatch):
    plan = apc.model_apc_plan(llama.model.language_model)
    refused = [replace(c, restorable=False, reason="no contract") for c in plan.components]
    monkeypatch.setattr(apc, "model_apc_plan", lambda model: replace(plan, components=refused))
    generator = type("Generator", (), {"apc_manager": None, "model": None})
    with pytest.raises(Unsupported, match=r"not supported for .*KVCache: no contract"):
        prefix_caching.require(generator)


def test_a_model_of_which_nothing_is_stored_is_refused():
    manager = prefix_caching.make_manager(PrefixCaching(block_size=2))
    prefix_caching.require_stored(manager, 9)  # too short to store
    with pytest.raises(Unsupported, match="nothing was stored of a prompt of 30 tokens"):
        prefix_caching.require_stored(manager, 30)
    keys = [mx.zeros((1, 1, 2, 2))]
    manager.store_kv_blocks([1, 2], keys, keys)
    prefix_caching.require_stored(manager, 30)


def test_other_pixels_are_another_key(shown):
    def key(content):
        parts = ((5, 6), Media("image", shown.family.facts.sizes["image"][0], content), (7,))
        prompt, media = shown.library.compose(shown.model, parts)
        made = inputs_of(shown.model, Request("r", prompt, 1, media=media))
        return prompt, prefix_caching.semantic_hash(shown.model, made)

    (prompt, one), (same, again), (alike, other) = key(0), key(0), key(1)
    assert prompt == same == alike
    assert one == again != other


def test_a_snapshot_that_is_said_to_be_longer_than_it_is_is_seen(lfm2, monkeypatch):
    """The catalogue of faults has the same for blocks."""
    real = apc.apc_lookup_plan

    def lookup(*args, **kwargs):
        hit = real(*args, **kwargs)
        return hit and {**hit, "prefix_len": hit["prefix_len"] + 1}

    monkeypatch.setattr(apc, "apc_lookup_plan", lookup)
    found = findings(lfm2, PREFIX_CACHING, "in_turn")
    assert {Verdict.DRIFT, Verdict.DIVERGED, Verdict.CRASH} & {f.verdict for f in found}


def test_blocks_that_a_cancelled_request_keeps_are_a_leak(llama, monkeypatch):
    real = apc.APCManager.release
    stop = iter([False, True])

    def release(self, blocks):
        """The second release of the run is the cancelled request's."""
        if not next(stop, False):
            real(self, blocks)

    monkeypatch.setattr(apc.APCManager, "release", release)
    found = findings(llama, PREFIX_CACHING, "cancelled")
    assert Verdict.LEAK in {f.verdict for f in found}


def test_the_engine_says_what_was_reused(llama):
    schedules = {s.name: s for s in PREFIX_CACHING.make(brief_for(llama, MlxVlmEngine, 0))}
    trace = play(MlxVlmEngine, llama.model, schedules["in_turn"], meter=llama.meter)
    reused = {n: c for step in trace.steps for n, c in step.output.reused.items()}
    assert reused == {"in_block": 16, "longer": 20, "edge": 12, "swapped": 4}
    processed = {}
    for step in trace.steps:
        for name, count in step.output.processed.items():
            processed[name] = processed.get(name, 0) + count
    prompts = {r.request_id: len(r.prompt) for r in trace.schedule.requests}
    assert processed == {name: n - reused.get(name, 0) for name, n in prompts.items()}


def test_a_prompt_is_prepared_as_each_release_takes_it():
    seen = []

    def newest(length, *, prefill_step_size):
        seen.append((length, prefill_step_size))

    for calls in ({"prepare_prefill": newest}, {"prepare_prefill": seen.append}, {}):
        generator = SimpleNamespace(apc=SimpleNamespace(**calls), prefill_step_size=8)
        prefix_caching.prepare(generator, 23)
    prefix_caching.prepare(SimpleNamespace(), 23)
    assert seen == [(23, 8), 23]
