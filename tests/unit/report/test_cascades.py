"""Failures with one cause are one finding, and a known defect is never its headline."""

import pytest

from conformance.checks.expectations.rules import CHANGED as WORDS
from conformance.core.verdict import Finding, Verdict
from conformance.report.cascades import (
    MANY,
    ODD_ONE_OUT,
    beginning,
    blame,
    by_case,
    cascades,
    headline,
    places,
    shared_place,
    symptom,
)
from conformance.report.explanation import Explanation, Relative, Where
from conformance.report.message import CHANGED, DIAGNOSIS, NEEDS, RULE

LADDER = ("repeat", "ragged", "early_finish", "samplers")
ROPE = "module:model.layers.{}.self_attn.rope:RoPE"


def explained(case, site, entry=""):
    return Explanation(
        *(case, "late", "diverged", "what", Where(site), Where(entry) if entry else None),
        *((), None, (), (), "", (), 1.0),
    )


def of(*results, **more):
    return cascades(results, LADDER, more)


def grouped(found):
    return [(c.families, [r.scenario for r in c.cases]) for c in found]


def wrong(result, finding, family, scenario, verdict=Verdict.DIVERGED, blame="", **changes):
    said = (Finding(Verdict.EXACT, DIAGNOSIS, f"{blame}: it is so"),) if blame else ()
    evidence = (finding(verdict, **changes), *said)
    return result(f"e/{family}/{scenario}/d/0", verdict, evidence=evidence)


def test_wrong_numbers_of_a_family_are_one_finding_from_the_lowest_rung_on(result, finding):
    found = of(
        wrong(result, finding, "a", "samplers", Verdict.DRIFT, what="later"),
        wrong(result, finding, "a", "ragged", what="token 1 is 2"),
        wrong(result, finding, "a", "early_finish", Verdict.NAN),
        result("e/a/repeat/d/0"),
    )
    assert grouped(found) == [(("a",), ["ragged", "early_finish", "samplers"])]
    assert found[0].sentence == "a: 3 cases fail, first at `ragged`: token 1 is 2."
    assert found[0].verdict is Verdict.NAN


def test_what_does_not_build_on_another_scenario_is_a_finding_of_its_own(result, finding):
    order = (*LADDER, "quantized", "traffic_quantized", "served_together", "served_options")

    def found(*scenarios):
        bad = [wrong(result, finding, "a", scenario) for scenario in scenarios]
        return [[r.scenario for r in one.cases] for one in cascades(bad, order)]

    assert found("served_options", "served_leaves") == [["served_options"], ["served_leaves"]]
    assert found("samplers", "quantized") == [["samplers"], ["quantized"]]
    assert found("quantized", "traffic_quantized") == [["quantized", "traffic_quantized"]]
    assert found("served_together", "served_options") == [["served_together", "served_options"]]
    assert found("served_mine", "served_yours") == [["served_mine", "served_yours"]]


def test_exceptions_are_alike_if_one_file_raises_one_class(result, finding):
    def crash(scenario, error, frame):
        what = f"the engine raised {error} [{frame}:{len(scenario)}, in step 0]"
        return wrong(result, finding, "a", scenario, Verdict.CRASH, what=what, got=error)

    found = of(
        crash("ragged", "ValueError: (2,1) into (1,4)", "models/base.py"),
        crash("early_finish", "ValueError: shapes differ", "models/base.py"),
        crash("samplers", "ValueError: shapes differ", "generate.py"),
    )
    assert grouped(found) == [(("a",), ["ragged", "early_finish"]), (("a",), ["samplers"])]


def test_the_family_with_the_worst_verdict_comes_first(result, finding):
    found = of(
        wrong(result, finding, "a", "ragged"),
        wrong(result, finding, "b", "samplers", Verdict.CRASH),
        wrong(result, finding, "b", "ragged", Verdict.DRIFT),
    )
    assert [(c.families[0], c.first.scenario) for c in found] == [
        *(("b", "ragged"), ("b", "samplers")),
        ("a", "ragged"),
    ]


def test_a_known_finding_is_neither_headline_nor_cause(result, finding):
    known = finding(Verdict.PROTOCOL, what="invalid call accepted", known="old-defect")
    new = finding(Verdict.DIVERGED, what="token 3 is 4")
    both = result("e/a/samplers/d/0", Verdict.PROTOCOL, known="old-defect", evidence=(known, new))
    found = of(both, wrong(result, finding, "a", "ragged", what="token 1 is 2"))
    assert len(found) == 1
    assert found[0].sentence == (
        "a: 2 cases fail, first at `ragged`: token 1 is 2. Known defects aside."
    )
    assert found[0].verdict is Verdict.DIVERGED
    (alone,) = of(both)
    assert alone.sentence == "a: 1 case fails, at `samplers`: token 3 is 4. Known defects aside."


def test_a_defect_that_is_fixed_is_one_finding_of_all_its_families(result):
    fixed = [
        result(f"e/{family}/{scenario}/d/0", expected=False, known="x")
        for family, scenario in (("a", "ragged"), ("b", "samplers"), ("a", "early_finish"))
    ]
    (found,) = of(*fixed)
    assert found.sentence == (
        "2 families: 3 cases pass, but the expectations name a defect for them: x."
    )


def test_a_known_defect_whose_function_changed_is_not_the_news(result, finding):
    said = f"{CHANGED} lost, its function changed here: mlx_lm/models/cache.py:3"
    rule = Finding(Verdict.DIVERGED, RULE, said)
    old = [
        result(f"e/a/{scenario}/d/0", Verdict.DIVERGED, evidence=(finding(Verdict.DIVERGED), rule))
        for scenario in ("repeat", "ragged")
    ]
    new = wrong(result, finding, "b", "samplers", Verdict.DRIFT)
    found = of(*old, new)
    assert grouped(found) == [(("b",), ["samplers"]), (("a",), ["repeat", "ragged"])]
    assert WORDS == CHANGED
    assert found[1].sentence == f"a: 2 cases fail, first at `repeat`: {said}."


def test_explained_cases_are_grouped_by_their_place_in_whichever_layer(result, finding):
    bad = {n: wrong(result, finding, "a", n) for n in ("ragged", "early_finish", "samplers")}
    sites = {"ragged": ROPE.format(0), "early_finish": "input:tokens", "samplers": ROPE.format(3)}
    known = {bad[name].case: explained(bad[name].case, site) for name, site in sites.items()}
    found = of(*bad.values(), **known)
    assert grouped(found) == [(("a",), ["ragged", "samplers"]), (("a",), ["early_finish"])]


def test_a_crash_is_of_the_cause_that_breaks_the_same_cache_entry(result, finding):
    first = wrong(result, finding, "a", "ragged")
    crash = wrong(result, finding, "a", "early_finish", Verdict.CRASH, got="ValueError: x")
    entry = "cache:{}:BatchKVCache:left_padding"
    known = {
        first.case: explained(first.case, entry.format(0)),
        crash.case: explained(crash.case, "crash:base.py:3", entry.format(1)),
    }
    assert len(of(first, crash)) == 2
    assert len(of(first, crash, **known)) == 1


def test_families_that_first_fail_alike_where_the_models_are_right_are_one_finding(result, finding):
    def bad(family, scenario, who):
        return wrong(result, finding, family, scenario, blame=who)

    engine, model = "engine or cache", "model"
    found = of(*(bad(f, "early_finish", engine) for f in "ab"), bad("a", "samplers", engine))
    assert grouped(found) == [(("a", "b"), ["early_finish", "early_finish", "samplers"])]
    assert found[0].sentence.startswith("2 families: 3 cases fail, first at `early_finish` (a): ")
    assert found[0].name == "e/2 families"
    assert len(of(*(bad(f, "ragged", model) for f in "ab"))) == 2, "files of their own"
    assert len(of(bad("a", "ragged", engine), bad("b", "samplers", engine))) == 2, "another rung"


def test_many_families_that_first_fail_alike_are_one_finding_whoever_is_to_blame(result, finding):
    many = [wrong(result, finding, f"f{n}", "ragged", blame="model") for n in range(MANY)]
    assert len(of(*many)) == 1
    assert len(of(*many[1:])) == MANY - 1


def test_families_whose_explanations_name_different_modules_stay_apart(result, finding):
    many = [wrong(result, finding, f"f{n}", "ragged", blame="model") for n in range(MANY + 1)]
    first = many[0].case
    apart = {first: explained(first, "module:model.norm:RMSNorm")}
    apart |= {r.case: explained(r.case, ROPE.format(0)) for r in many[1:]}
    assert [len(c.families) for c in of(*many, **apart)] == [MANY, 1]


def test_families_with_one_broken_cache_are_one_finding_on_whatever_rung(result, finding):
    one = wrong(result, finding, "a", "ragged", blame="model")
    other = wrong(result, finding, "b", "samplers")
    site = "cache:0:BatchKVCache:offset"
    known = {r.case: explained(r.case, site) for r in (one, other)}
    assert grouped(of(one, other, **known)) == [(("a", "b"), ["ragged", "samplers"])]
    assert len(of(one, other)) == 2
    nowhere = {r.case: explained(r.case, "none") for r in (one, other)}
    assert len(of(one, other, **nowhere)) == 2


def test_engines_and_dtypes_are_findings_of_their_own_and_named(result, finding):
    def bad(engine, dtype):
        return result(f"{engine}/a/ragged/{dtype}/0", Verdict.DRIFT, evidence=(finding(),))

    found = of(bad("e", "d"), bad("e", "h"), bad("f", "d"))
    assert [c.sentence.partition(":")[0] for c in found] == ["a (e, d)", "a (e, h)", "a (f, d)"]


def test_each_unexpected_case_is_in_one_finding(result, finding):
    results = [
        wrong(result, finding, f"f{n}", name, verdict, blame=who)
        for n, who in enumerate(("model", "engine or cache", "undecided") * 4)
        for name in LADDER
        for verdict in (Verdict.DRIFT, Verdict.LEAK)[n % 2 :]
    ]
    results = list({r.case: r for r in results}.values())
    found = of(*results)
    assert sorted(r.case for c in found for r in c.cases) == sorted(r.case for r in results)
    assert by_case(found).keys() == {r.case for r in results}


# The one sentence about failures with one cause --------------------------------------------------


def bad(result, finding, *more, case="e/a/ragged/d/0", **changes):
    return result(case, Verdict.DRIFT, evidence=(finding(**changes), *more))


def test_a_single_stream_that_stands_alone_is_said(result, finding):
    alone = Finding(Verdict.EXACT, DIAGNOSIS, f"{ODD_ONE_OUT}: every engine gives token 5")
    text = headline((bad(result, finding, alone),), None)
    assert text.endswith(". The single stream is the odd one out.")


def test_a_verdict_without_a_finding_is_said_as_it_is(result):
    text = headline((result("e/a/ragged/d/0", Verdict.HANG),), None)
    assert text == "a: 1 case fails, at `ragged`: the verdict is hang, without a finding."


def test_what_a_workload_needs_is_the_headline_and_the_rung_is_said_if_one_shows_it(
    result, finding
):
    needs = Finding(Verdict.EXACT, NEEDS, "needs 2 requests, a join", schedule="s")
    workload = bad(result, finding, needs, case="e/a/traffic/d/0", what="token 1 is 2")
    rung = bad(result, finding, what="token 1 is 3")
    assert headline((workload,), None) == (
        "a: 1 case fails: token 1 is 2. It needs 2 requests, a join, in `traffic`."
    )
    assert headline((rung, workload), None) == (
        "a: 2 cases fail: token 1 is 3. It needs 2 requests, a join, in `traffic`; "
        "the first rung is `ragged`."
    )


# What a failure looks like, and where it begins, in words -----------------------------------------


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
