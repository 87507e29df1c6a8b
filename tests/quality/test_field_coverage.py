"""The fields of the installed libraries: known, and set, reviewed or a gap that is listed."""

import pytest

from conformance.power.faults import registry_with_faults
from conformance.run.field_coverage import (
    State,
    covered,
    known_fields,
    new_fields,
    reviewed_entries,
    stale,
)
from conformance.run.largest_values import PLAIN, LargestValues

# What users set, and what only schedules of its own catch.
SET = {
    ("mlx_lm", "BatchGenerator.insert", "samplers"),
    ("mlx_lm", "BatchGenerator.insert_segments", "samplers"),
    ("mlx_lm", "BatchGenerator.insert_segments", "logits_processors"),
    ("mlx_lm", "BatchGenerator.insert_segments", "stop_sequences"),
    ("mlx_lm", "BatchGenerator.insert_segments", "caches"),
    ("mlx_lm_batch_generate", "batch_generate", "logits_processors"),
    ("mlx_lm_server", "request", "logprobs"),
    ("mlx_vlm", "BatchGenerator.__init__", "kv_bits"),
    ("mlx_vlm_server", "ChatRequest", "logprobs"),
}
# What the default tier must play at least: past the numbers from which on code is another one.
LEAST = {
    ("mlx_lm", PLAIN): {
        "requests in one call": 257,
        "rows at once, at most": 257,
        "rows in one prefill, at most": 129,
        "tokens of a prompt": 2049,
        "tokens of an answer": 513,
        "pieces of a prompt": 33,
        "segments of a prompt": 33,
        "stop sequences of a request": 65,
        "removals in one call": 65,
        "joins between removals": 33,
        "processors of a request": 33,
        "logit_bias": 129,
        "top_k": 65,
        "repetition_context_size": 257,
        "engines, one after another": 30,
    },
    ("mlx_lm", "kept"): {"tokens of a shared prefix": 257},
    ("mlx_vlm", PLAIN): {
        "requests in one call": 257,
        "rows at once, at most": 257,
        "pieces of a prompt": 33,
        "removals in one call": 65,
        "processors of a request": 33,
    },
    ("mlx_vlm", "quantized"): {"rows at once, at most": 33, "keys of a row": 513},
    ("mlx_vlm", "drafts"): {"rows at once, at most": 33},
    ("mlx_vlm", "kept"): {"tokens of a shared prefix": 257, "tenants": 3},
}


def test_all_that_the_installed_releases_accept_is_known():
    assert new_fields(registry_with_faults().engines.values(), known_fields()) == ()


@pytest.mark.nightly
def test_each_reviewed_field_is_accepted_and_set_by_no_schedule_and_no_value_is_low():
    registry = registry_with_faults()
    largest = LargestValues()
    states = covered(registry, list(registry.engines), largest)
    assert stale(states, reviewed_entries()) == ()
    assert {(s.engine, s.place, s.field) for s in states if s.state is State.SET} >= SET
    found = {(one.engine, one.quantity): one.values for one in largest.table()}
    low = {
        (engine, quantity, feature): (found[engine, quantity].get(feature, 0), least)
        for (engine, feature), leasts in LEAST.items()
        for quantity, least in leasts.items()
        if found[engine, quantity].get(feature, 0) < least
    }
    assert low == {}
