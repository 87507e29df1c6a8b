"""What a failure looks like, and where it begins, in words."""

import pytest

from conformance.core.verdict import Finding, Verdict
from conformance.report.explanation import Explanation, Relative, Where
from conformance.report.message import DIAGNOSIS
from conformance.report.symptoms import beginning, blame, places, shared_place, symptom


def explanation(site, *, detail="", like=(), entry=""):
    begins, held = Where(site, detail=detail), Where(entry) if entry else None
    return Explanation(
        "c", "s", "drift", "w", begins, held, (), None, (), (), "", tuple(like), seconds=1.0
    )


@pytest.mark.parametrize(
    ("site", "text"),
    [
        ("module:model.layers.0.self_attn:Attention", "begins at model.layers.0.self_attn (Att"),
        ("cache:0:BatchKVCache:offset", "begins in cache entry 0 (BatchKVCache), its offset: 3"),
        ("input:tokens", "begins with the tokens that the model is fed: 3"),
        ("output:logprobs", "logprobs are wrong: 3"),
        ("output:protocol", "3"),
        ("crash:models/base.py:132", "raised at models/base.py:132: 3"),
        ("none", "begins at no place that is known"),
    ],
)
def test_each_kind_of_place_has_its_words(site, text):
    assert beginning(explanation(site, detail="3")).startswith(text)


def test_a_class_is_named_only_where_its_defects_break_that_place():
    site = "module:model.rope:RoPE"
    fits = Relative("rope offset", 6.0, ("B4",), ("#1",), fits=True)
    near = Relative("padding", 6.0, ("B1",), ("#2",), fits=True)
    kind = Relative("masks", 6.0, ("M1",), ("#3",))
    named = beginning(explanation(site, like=[fits]))
    assert named == "begins at model.rope (RoPE), like defects of the class 'rope offset'"
    for none in ([kind], [kind, fits], [fits, near]):
        said = beginning(explanation(site, like=none))
        assert said == "begins at model.rope (RoPE); no class of defects fits"
    assert "class" not in beginning(explanation(site))
    assert "class" not in beginning(explanation("crash:base.py:1", like=[fits]))


def test_a_place_is_the_same_in_each_layer_and_each_line():
    one, other = "module:model.layers.0.mlp:MLP", "module:model.layers.31.mlp:MLP"
    assert places(explanation(one)) == places(explanation(other))
    assert places(explanation("crash:a/base.py:1")) == places(explanation("crash:a/base.py:22"))
    assert places(explanation("cache:0.1:KVCache:keys")) != places(explanation(one))
    assert len(places(explanation(one, entry="cache:0:KVCache:keys"))) == 2
    assert places(explanation("none")) == frozenset()


def test_models_share_a_place_by_its_last_name():
    llama = explanation("module:model.layers.0.self_attn.rope:RoPE")
    other = explanation("module:transformer.h.7.attn.rope:RoPE")
    assert shared_place(llama) == shared_place(other) == {"module:rope:RoPE"}
    assert shared_place(explanation("cache:3:KVCache:keys")) == {"cache:KVCache:keys"}
    assert shared_place(explanation("none")) == frozenset()


def test_messages_count_only_where_the_check_does_not_say_it_all(result, finding):
    def seen(verdict, **changes):
        return symptom(result(verdict=verdict, evidence=(finding(verdict, **changes),)))

    assert seen(Verdict.DRIFT, what="a") == seen(Verdict.ORACLE, what="b", check="stateless")
    assert seen(Verdict.LEAK, what="a") == seen(Verdict.LEAK, what="b")
    assert seen(Verdict.LEAK, check="leak") != seen(Verdict.LEAK, check="threads")
    accepted = "the invalid call '{}' was accepted, {} times"
    one = seen(Verdict.PROTOCOL, what=accepted.format("x", 1))
    assert one == seen(Verdict.PROTOCOL, what=accepted.format("y", 20))
    assert one != seen(Verdict.PROTOCOL, what="a token too many")


def test_the_blame_is_the_beginning_of_the_diagnosis(result):
    def said(text):
        return blame(result(evidence=(Finding(Verdict.EXACT, DIAGNOSIS, text),)))

    assert said("engine or cache: the same model is right on x") == "engine or cache"
    assert said("undecided: no reference engine can play this") == ""
    assert blame(result()) == ""
