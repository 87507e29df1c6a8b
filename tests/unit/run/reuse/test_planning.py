"""What is played again, and what is taken from an earlier run."""

from types import SimpleNamespace

import msgspec
from results_by_hand import make_finding, make_result

from conformance.core.family import Facts, Family
from conformance.core.verdict import CaseId, Verdict
from conformance.run.registry import build_registry
from conformance.run.reuse import planning
from conformance.run.reuse.dependency_recorder import reusable
from conformance.run.reuse.planning import Reuse, bare

A, B = "mlx_lm/llama/ragged/float32/0", "mlx_lm/llama/wide/float32/0"
CASES = tuple(map(CaseId.parse, (A, B)))
REGISTRY = SimpleNamespace(
    engines={
        "mlx_lm": SimpleNamespace(
            library="mlx_lm", elsewhere=False, capabilities=frozenset(), __module__="conformance.x"
        )
    },
    families={("mlx_lm", "llama"): Family("llama", Facts(), {"vocab_size": 8})},
)


class Store:
    """Knows some results, whose modules and keys are as given."""

    def __init__(self, *results, modules=None, keys=()):
        self._results = {result.case: result for result in results}
        self._modules, self._keys = modules or {}, dict(keys)

    def known(self, case, family, tier):
        return self._results.get(str(case))

    def hangs_on(self, case):
        return self._modules.get(str(case))

    def key(self, case, family, tier):
        return self._keys.get(str(case), "")


def reuse(*results, judge=lambda result: result, **more):
    return Reuse(REGISTRY, Store(*results, **more), "full", judge)


def test_what_is_known_is_not_played_and_marked():
    plan = reuse(make_result(A)).plan(CASES)
    assert plan.play == CASES[1:]
    assert [(r.case, r.reused) for r in plan.reused] == [(A, True)]


def test_only_what_changed_leaves_the_rest_out():
    plan = reuse(make_result(A)).changed(CASES)
    assert (plan.play, plan.reused) == (CASES[1:], ())
    assert [(name, found.verdict) for name, found in plan.left_out.items()] == [(A, "exact")]


def test_a_failure_is_used_again_only_with_its_diagnosis():
    failed = make_result(A, Verdict.DIVERGED, expected=False)
    assert reuse(failed).plan(CASES).play == CASES
    diagnosed = make_finding(Verdict.EXACT, check="diagnosis")
    explained = make_result(A, Verdict.DIVERGED, expected=False, evidence=(diagnosed,))
    assert reuse(explained).plan(CASES).play == CASES[1:]


def test_results_are_judged_by_the_known_defects_of_today():
    def judge(result):
        assert not result.known
        assert all(finding.check != "expectations" for finding in result.evidence)
        return replace_known(result)

    rule = make_finding(check="expectations")
    old = make_result(A, Verdict.DIVERGED, expected=True, known="gone", evidence=(rule,))
    (found,) = reuse(old, judge=judge).plan(CASES).reused
    assert (found.known, found.expected) == ("today", True)


def test_a_result_that_does_not_count_today_is_played():
    assert reuse(make_result(A), judge=lambda _: None).plan(CASES).play == CASES


def replace_known(result):
    return msgspec.structs.replace(result, known="today", expected=True)


def test_since_older_results_what_has_another_key_is_played():
    older = [make_result(A, key="1"), make_result(B, key="1")]
    plan = reuse(keys={A: "1", B: "2"}).since(CASES, older, ())
    assert (plan.play, list(plan.left_out)) == (CASES[1:], [A])


def test_since_older_results_a_failure_is_judged_anew_or_played():
    wrong = make_result(A, Verdict.DIVERGED, expected=True, known="gone", key="1")
    left_out = reuse(keys={A: "1"}).since(CASES, [wrong], ()).left_out
    assert [found.expected for found in left_out.values()] == [False]
    assert reuse(keys={A: "1"}, judge=lambda _: None).since(CASES, [wrong], ()).play == CASES


def test_since_older_results_what_is_not_known_is_played():
    assert reuse(keys={A: "1"}).since(CASES, [make_result(A)], ()).play == CASES
    assert reuse().since(CASES, [make_result(A, key="1")], ()).play == CASES
    assert reuse(keys={A: "1"}).since(CASES, [], ()).play == CASES


def test_since_older_results_what_is_kept_or_remembered_here_counts_first():
    """A file can be edited: the last word on a failure is not its own."""
    edited, wrong = make_result(A, key="1"), make_result(A, Verdict.DIVERGED, expected=False)
    left_out = reuse(wrong, keys={A: "1"}).since(CASES, [edited], {A}).left_out
    assert left_out == {A: bare(wrong)}
    assert reuse(keys={A: "1"}).since(CASES, [edited], {A}).play == CASES
    assert reuse(keys={A: "1"}).since(CASES, [edited], {B}).play == CASES[1:]


def test_what_hangs_on_a_changed_module_is_played_and_what_is_not_known(monkeypatch):
    monkeypatch.setattr(planning, "reached", lambda roots: None)  # no file can be read
    modules = {A: frozenset({"lib.llama"}), B: frozenset({"lib.cache"})}
    assert reuse(modules=modules).touched(CASES, {"lib.cache"}).play == CASES[1:]
    assert reuse(modules={A: modules[A]}).touched(CASES, {"lib.cache"}).play == CASES[1:]
    assert reuse(modules=modules).touched(CASES, {"lib.none"}).play == ()
    failed = make_result(A, Verdict.DIVERGED, expected=False)
    left_out = reuse(failed, modules=modules).touched(CASES, {"lib.none"}).left_out
    assert left_out == {A: bare(failed), B: None}, "a failure without its diagnosis, too"
    whole = {A: frozenset({"lib.*"}), B: modules[B]}
    assert reuse(modules=whole).touched(CASES, {"lib.new"}).play == CASES[:1]


def test_a_kept_result_is_of_the_checkout_of_today(monkeypatch):
    def now(package):
        return {package: "0.33.0", f"{package} source": "/x@new"}

    monkeypatch.setattr(planning, "versions_of", now)
    old = {"mlx": "0.32.4", "mlx-lm": "0.33.0", "mlx-lm source": "/x@old"}
    (found,) = reuse(make_result(A, versions=old)).plan(CASES).reused
    assert found.versions == {"mlx": "0.32.4", "mlx-lm": "0.33.0", "mlx-lm source": "/x@new"}
    monkeypatch.setattr(planning, "versions_of", lambda package: {package: "0.32.2"})
    (found,) = reuse(make_result(A, versions=old)).plan(CASES).reused
    assert found.versions == {"mlx": "0.32.4", "mlx-lm": "0.32.2"}


def test_of_our_engines_what_is_elsewhere_is_never_used_again():
    engines = build_registry(engines=("*",)).engines
    never = {name for name, engine in engines.items() if not reusable(engine)}
    assert never == {"http"}
