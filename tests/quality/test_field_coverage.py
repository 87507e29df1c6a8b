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


def test_all_that_the_installed_releases_accept_is_known():
    assert new_fields(registry_with_faults().engines.values(), known_fields()) == ()


@pytest.mark.nightly
def test_each_reviewed_field_is_accepted_and_set_by_no_schedule():
    registry = registry_with_faults()
    states = covered(registry, list(registry.engines))
    assert stale(states, reviewed_entries()) == ()
    assert {(s.engine, s.place, s.field) for s in states if s.state is State.SET} >= SET
