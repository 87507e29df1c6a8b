"""The text of scripts, without running them."""

import ast
import dataclasses

import pytest

from conformance.core.engine_options import Drafting, EngineOptions, PrefixCaching
from conformance.core.errors import NoScriptError
from conformance.core.family import Recipe
from conformance.core.schedule import Arrival, Probe, Request, Schedule, Trigger, Weigh
from conformance.core.token_choice import Processor
from conformance.core.verdict import CaseId, Verdict
from conformance.tools.repro.found import Found, Joined, Kind, Symptom
from conformance.tools.repro.refusing import Reason
from conformance.tools.repro.script import Terse, rendered, write_scripts
from conformance.tools.repro.trying import Tried, with_own_numbers

ROWS = (Request("a", (5, *[7] * 9, 6), 2), Request("b", (8,), 1))


def found(library="mlx_vlm", kind=None, requests=ROWS, rest=None, **schedule):
    symptom = Symptom(Verdict.DRIFT, kind or Kind(), "it drifts", difference=1.0, noise=1e-4)
    return Found(
        case=CaseId(library, "llama", "ragged", "float32", 0),
        library=library,
        schedule=Schedule("ragged", (Arrival(requests),), **schedule),
        symptom=symptom,
        steps=9,
        text="why.",
        place="where.",
        config={"model_type": "llama", "vision_config": {"depth": 2}},
        vocab=64,
        recipe=Recipe(),
        shapes={"lm_head.weight": (64, 8)},
        seed=0,
        **(rest or {}),
    )


def calls(text):
    return {
        node.func.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }


def test_the_docstring_of_a_new_failure_has_the_numbers_that_the_script_prints():
    new = dataclasses.replace(found(), text="it drifts.")
    printed = (
        "a: alone 1, in the batch 1, 0.1 nats apart\nb: alone 1, in the batch 2, 3 nats apart\n"
    )
    ended = Tried(1, f"{printed}WRONG: expected all below the bound")
    text = with_own_numbers(rendered(new), new, ended)
    words = " ".join(ast.get_docstring(ast.parse(text)).split())
    assert words.startswith("It prints: b: alone 1, in the batch 2, 3 nats apart. From mlx_vlm/")
    assert "it drifts" not in text
    assert with_own_numbers(rendered(found()), found(), ended) == rendered(found()), "an entry's"


def test_runs_of_one_token_are_products():
    assert "'a': ([5, *[7] * 9, 6], 2)" in rendered(found())


def test_prompts_that_are_embedded_together_are_one_array():
    joined = (Joined(("a", "b"), pad=3, right=True),)
    text = rendered(found(rest={"joined": joined}))
    assert "prompt + [3] * (width - len(prompt))" in text
    assert "attention_mask=mask" in text
    assert "_split_prompt_kwargs_per_row(given, len(group))" in text
    left = rendered(found(rest={"joined": (dataclasses.replace(joined[0], right=False),)}))
    assert "[3] * (width - len(prompt)) + prompt" in left


def test_calls_that_are_not_refused_decode_nothing():
    probe = Probe("unknown_uid", Trigger(count=1))
    for library, call in (("mlx_lm", "remove([1000003])"), ("mlx_vlm", "remove(1000003)")):
        text = rendered(found(library, Kind(called=True), probes=(probe,)))
        assert call in text
        assert "next" not in calls(text)


def test_calls_at_their_step_are_within_the_run():
    probe = Probe("mismatched_embeddings", Trigger(count=3))
    text = rendered(found(kind=Kind(crash=True), probes=(probe,)))
    assert "if step == 3:" in text
    assert "embeds(7)" in text
    assert "import contextlib, copy, sys" in text


def test_processors_are_reported_to_both():
    processor = Processor("library", {"repetition_penalty": 1.5, "logit_bias": {"3": 1.0}})
    one = Request("a", (5, 6), 2, processors=(processor,))
    text = rendered(found(requests=(one, ROWS[1])))
    assert "PROCESSORS = {'a': {'repetition_penalty': 1.5, 'logit_bias': {3: 1.0}}}" in text
    assert text.count("make_logits_processors(**PROCESSORS.get(name, {}))") == 2


@pytest.mark.parametrize(
    ("weigh", "call"),
    [(Weigh.GRAPH, "export_to_dot"), (Weigh.KEPT, "clear"), (Weigh.COMPUTED, "eval")],
)
def test_memory_is_measured_as_the_schedule_sets(weigh, call):
    text = rendered(found("mlx_lm", Kind(weighed=str(weigh)), weigh=weigh))
    assert call in calls(text)
    assert ("mx.eval(" in text) == (weigh is Weigh.COMPUTED)


def test_a_prompt_that_goes_on_from_an_answer_is_made_of_it():
    options = EngineOptions(prefix_caching=PrefixCaching(snapshots=5))
    rest = {"follows": {"b": "a"}}
    text = rendered(found("mlx_lm", Kind(crash=True), options=options, rest=rest))
    assert "LRUPromptCache(5)" in text
    assert "{'b': 'a'}.get(name)" in text
    assert "'b': ([5, *[7] * 9, 6], 1)" in text


def test_the_keeper_of_prefixes_is_given_to_the_generator():
    options = EngineOptions(prefix_caching=PrefixCaching())
    text = rendered(found(options=options))
    assert "apc_manager=manager" in text
    assert "apc_manager" not in rendered(found())


@pytest.mark.parametrize("difference", [float("inf"), float("nan")])
def test_a_bound_is_a_number_whatever_the_difference(difference):
    symptom = Symptom(Verdict.NAN, Kind(), "it is none", difference=difference, noise=1e-4)
    assert "BOUND = 0.01 " in rendered(dataclasses.replace(found(), symptom=symptom))


def test_towers_go_only_where_nothing_is_shown():
    assert "depth" in rendered(found(), terse=Terse.SPACE)
    assert "depth" not in rendered(found(), terse=Terse.TOWERS)
    shown = found(rest={"processed": {"a": {"grid": 1}}})
    assert "depth" in rendered(shown, terse=Terse.TOWERS)


def test_empty_lines_go_before_anything_of_the_model_does():
    tight = rendered(found(), terse=Terse.SPACE)
    assert "\n\n" in rendered(found(), terse=Terse.REASON)
    assert "\n\n" not in tight
    assert "WEIGHTS" in tight


def test_one_that_fits_has_no_other_and_one_that_is_too_long_is_refused():
    assert len(write_scripts(found())) == 1
    requests = tuple(Request(f"r{n}", tuple(range(200)), 1) for n in range(9))
    with pytest.raises(NoScriptError, match="60 are the most") as raised:
        write_scripts(found(requests=requests))
    assert raised.value.reason == Reason.LONG


@pytest.mark.parametrize(
    ("schedule", "rest", "reason"),
    [
        ({"options": EngineOptions(drafting=Drafting("mtp"))}, {}, Reason.DRAFTER),
        ({}, {"packed": True}, Reason.PACKED),
        ({}, {"model_file": "x.py", "processed": {"a": {"grid": 1}}}, Reason.FILE),
        ({"weigh": Weigh.GRAPH}, {}, "no words for weighed memory"),
        ({"decode_on_other_thread": True}, {}, "no words for another thread"),
        ({"beside_models": True}, {}, "no words for models beside each other"),
    ],
)
def test_what_the_templates_lack_is_named(schedule, rest, reason):
    with pytest.raises(NoScriptError) as raised:
        write_scripts(found(rest=rest, **schedule))
    assert raised.value.reason == reason
