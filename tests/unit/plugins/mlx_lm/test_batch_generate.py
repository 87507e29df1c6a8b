"""``batch_generate`` as an engine: one call is one step."""

import dataclasses
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from conformance.core.engine import Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.schedule import Request, Stage
from conformance.core.token_choice import Processor, Sampler
from conformance.core.trace import FinishReason
from conformance.plugins.mlx_lm import batch_generate
from conformance.plugins.mlx_lm.batch_generate import MlxLmBatchGenerate
from conformance.plugins.mlx_lm.library import MlxLm

LONG, SHORT = Request("long", tuple(range(1, 10)), 3), Request("short", (20, 21), 2)


@pytest.fixture
def engine(model):
    made = MlxLmBatchGenerate(model, EngineOptions())
    yield made
    made.close()


def solo(model, request):
    return (
        MlxLm()
        .single_stream(model, request, options=EngineOptions(), steps=request.max_tokens)
        .stream
    )


def test_one_step_gives_all_tokens(model, engine):
    engine.insert([Submission(LONG), Submission(SHORT)])
    assert engine.stages() == {"long": Stage.QUEUED, "short": Stage.QUEUED}
    output = engine.step()
    assert output.processed == {"long": 9, "short": 2}
    for request in (LONG, SHORT):
        events = [e for e in output.events if e.request_id == request.request_id]
        want = solo(model, request)
        assert tuple(e.token for e in events) == want.tokens
        assert [e.finish_reason for e in events] == [None] * (len(events) - 1) + [
            FinishReason.LENGTH
        ]
        chosen = [want.logprobs[i, token] for i, token in enumerate(want.tokens)]
        assert [e.token_logprob for e in events] == pytest.approx(chosen, abs=1e-4)
        assert all(e.logprobs is None for e in events)


def test_a_step_without_requests_does_nothing(engine):
    assert engine.step().events == ()


def test_what_is_removed_before_the_call_is_not_run(engine):
    engine.insert([Submission(LONG), Submission(SHORT)])
    engine.remove(["long"])
    assert {event.request_id for event in engine.step().events} == {"short"}


def test_a_returned_cache_goes_on(model, engine):
    engine.insert([Submission(LONG)])
    engine.step()
    more = Request("more", (3, 4), 2)
    engine.insert([Submission(more, prefix=engine.extract("long"))])
    got = tuple(event.token for event in engine.step().events)
    whole = Request("whole", (*LONG.prompt, *solo(model, LONG).tokens, 3, 4), 2)
    assert got == solo(model, whole).tokens


def test_a_returned_cache_goes_on_from_a_file(model, engine):
    engine.insert([Submission(LONG)])
    engine.step()
    prefix = engine.extract("long")
    loaded = engine.reloaded(prefix)
    assert [type(entry) for entry in loaded] == [type(entry) for entry in prefix]
    assert all(one is not other for one, other in zip(loaded, prefix, strict=True))
    engine.insert([Submission(Request("more", (3, 4), 2), prefix=loaded)])
    got = tuple(event.token for event in engine.step().events)
    whole = Request("whole", (*LONG.prompt, *solo(model, LONG).tokens, 3, 4), 2)
    assert got == solo(model, whole).tokens


def test_it_has_no_probes(engine):
    assert engine.probes() == ()
    with pytest.raises(Unsupported, match="mlx_lm_batch_generate has no probe 'x'"):
        engine.probe("x")


def test_all_rows_get_the_sampler_and_processors_of_the_options(model):
    sampler, bias = Sampler("rank", {"rank": 1}), Processor("library", {"logit_bias": {"7": 1.0}})
    options = EngineOptions(sampler=sampler, processors=(bias,))
    rows = [replace(request, sampler=sampler, processors=(bias,)) for request in (LONG, SHORT)]
    engine = MlxLmBatchGenerate(model, options)
    engine.insert([Submission(row) for row in rows])
    events = engine.step().events
    for row in rows:
        tokens = tuple(e.token for e in events if e.request_id == row.request_id)
        assert tokens == solo(model, row).tokens
    assert solo(model, rows[0]).tokens != solo(model, LONG).tokens


def test_the_statistics_are_those_of_all_calls(engine):
    for request in (LONG, SHORT):
        engine.insert([Submission(request)])
        engine.step()
    found = engine.counted()
    assert found.prompts.tokens == len(LONG.prompt) + len(SHORT.prompt) - 2
    assert found.outputs.tokens == LONG.max_tokens + SHORT.max_tokens
    assert 0 < found.prompts.seconds + found.outputs.seconds <= found.wall


def test_what_it_says_beside_tokens_is_so(engine):
    for request in (LONG, SHORT):
        engine.insert([Submission(request)])
    first = engine.step().claims
    assert all(claim.holds for claim in first)
    engine.insert([Submission(LONG)])
    assert len(engine.step().claims) == len(first) - 1  # what is not asked for is seen once


def changed(**fields):
    def change(response, prompts):
        return dataclasses.replace(response, **fields)

    return change


def says_something(response, prompts):
    print("Finished")
    return response


def gives_logprobs_unasked(response, prompts):
    return response if prompts else dataclasses.replace(response, logprobs=[])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (changed(texts=None), "texts"),
        (changed(texts=["", ""]), "texts"),
        (changed(stats=None), "statistics"),
        (says_something, "results that were not asked for"),
        (says_something, "text on the terminal"),
        (gives_logprobs_unasked, "results that were not asked for"),
    ],
)
def test_what_is_not_so_is_seen(engine, change, what, monkeypatch, capsys):
    right = batch_generate.batch_generate

    def wrong(model, tokenizer, prompts, **options):
        return change(right(model, tokenizer, prompts, **options), prompts)

    monkeypatch.setattr(batch_generate, "batch_generate", wrong)
    engine.insert([Submission(LONG), Submission(SHORT)])
    assert what in [claim.what for claim in engine.step().claims if not claim.holds]
    assert capsys.readouterr().out == ""


def test_a_release_that_returns_texts_alone_is_asked_for_no_more(engine, monkeypatch):
    @dataclass
    class OldResponse:
        texts: list
        stats: object

    asked = []

    def old(model, tokenizer, prompts, max_tokens=128, **options):
        asked.extend(options)
        return OldResponse([tokenizer.decode([7, 8]) for _ in prompts], None)

    monkeypatch.setattr(batch_generate, "BatchResponse", OldResponse)
    monkeypatch.setattr(batch_generate, "batch_generate", old)
    engine.insert([Submission(LONG)])
    events = engine.step().events
    assert [(e.token, e.token_logprob) for e in events] == [(7, None), (8, None)]
    assert not [name for name in asked if name.startswith("return_") or name == "prompt_caches"]
