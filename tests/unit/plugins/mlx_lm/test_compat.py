"""What differs between releases, as it is in the installed one; and what is said of others."""

import pytest
from mlx_lm.generate import BatchGenerator

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.schedule import Stage
from conformance.plugins.mlx_lm import compat


@pytest.fixture
def generator(model):
    made = compat.make_generator(
        model,
        EngineOptions(prefill_step_size=3, prefill_batch_size=1, completion_batch_size=2),
    )
    yield made
    made.close()


def test_a_generator_has_the_sizes_it_is_given(generator):
    assert generator.prefill_step_size == 3
    assert generator.prefill_batch_size == 1
    assert generator.completion_batch_size == 2


def test_uids_are_found_in_every_stage_and_rows_in_order(generator):
    first, second, third = generator.insert([[1, 2], [3] * 9, [4, 5]], max_tokens=[9, 9, 9])
    assert set(compat.uids_by_stage(generator).values()) == {Stage.QUEUED}
    seen = []
    for _ in range(3):
        generator.next()
        seen.append(compat.uids_by_stage(generator))
    assert {first: Stage.DECODE, second: Stage.PREFILL, third: Stage.QUEUED} in seen
    while compat.uids_by_stage(generator).get(second) is not Stage.DECODE:
        generator.next()
    assert compat.decode_rows(generator) == [first, second]


def test_bytes_grow_with_rows_and_are_given_back(generator):
    assert compat.cache_bytes(generator) == 0
    (uid,) = generator.insert([[1, 2, 3]], max_tokens=[9])
    for _ in range(3):
        generator.next()
    assert compat.cache_bytes(generator) > 0
    generator.remove([uid])
    assert compat.cache_bytes(generator) == 0


def test_the_digest_sees_an_insert_and_a_step_and_nothing_in_between(generator):
    before = compat.digest(generator)
    assert compat.digest(generator) == before
    generator.insert([[1, 2, 3, 4, 5, 6]], max_tokens=[2])
    inserted = compat.digest(generator)
    assert {name for name in before if before[name] != inserted[name]} == {"uid counter", "queue"}
    generator.next()
    stepped = compat.digest(generator)
    assert stepped["queue"] == []
    assert stepped["prefill batch"] != inserted["prefill batch"]
    assert stepped["cache bytes"] > 0


def test_no_stop_sequences_are_no_argument():
    assert compat.stop_argument([(), ()], {}) == {}


def test_stop_sequences_are_the_librarys_own_objects():
    kept = {}
    (one, two) = compat.stop_argument([((1, 2),), ()], kept)["stop_sequences"]
    assert type(one).__name__ == type(two).__name__ == "StopSequences"
    assert compat.stop_argument([((1, 2),)], kept)["stop_sequences"] == [one], "equal ones share it"


def test_a_release_without_stop_sequences_says_so(monkeypatch):
    monkeypatch.setattr(BatchGenerator, "insert", lambda self, prompts: None)
    with pytest.raises(Unsupported, match="does not support stop sequences of a request"):
        compat.stop_argument([((1,),)], {})
