"""What mlx-lm's generator says of its rows and caches."""

from types import SimpleNamespace

import pytest

from conformance.core.engine_options import EngineOptions
from conformance.plugins.mlx_lm import compat
from conformance.plugins.mlx_lm.claims import Claims


@pytest.fixture
def generator(model):
    made = compat.make_generator(model, EngineOptions(prefill_step_size=3))
    yield made
    made.close()


@pytest.fixture
def claims(generator):
    return Claims(generator)


def wrong(claims):
    return [claim.what for claim in claims.taken() if not claim.holds]


def test_a_working_generator_says_what_is_so(claims, generator):
    generator.insert([[1, 2, 3, 4], [5, 6]], max_tokens=[2, 3])
    while compat.uids_by_stage(generator):
        prompts, _ = generator.next()
        claims.live_bytes()
        claims.rows(EngineOptions())
        for response in prompts:
            if response.end_of_prompt:
                claims.ends(response)
    made = claims.taken()
    assert len({claim.what for claim in made}) == 6
    assert [claim for claim in made if not claim.holds] == []
    assert claims.taken() == ()


def test_bytes_that_are_not_there_are_seen(claims, generator, monkeypatch):
    generator.insert([[1, 2, 3, 4]], max_tokens=[2])
    generator.next()
    monkeypatch.setattr(type(generator), "prompt_cache_nbytes", 8)
    claims.live_bytes()
    assert "bytes of live caches" in wrong(claims)


def test_more_rows_than_there_may_be_are_seen(claims, generator):
    generator.insert([[1, 2, 3, 4], [5, 6, 7]], max_tokens=[2, 2])
    generator.next()
    claims.rows(EngineOptions(prefill_batch_size=1, completion_batch_size=1))
    assert wrong(claims) == ["prompts at once"]


def test_a_prompt_that_ends_within_a_piece_is_seen(claims):
    claims.ends(SimpleNamespace(end_of_segment=False, progress=(3, 4)))
    assert len(wrong(claims)) == 2
