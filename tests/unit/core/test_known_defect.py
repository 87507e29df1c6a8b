"""Known defects for readers: their causes, groups and releases."""

import pytest
from defects_by_hand import entry, known

from conformance.core.known_defect import Severity, by_severity, releases, severity_of
from conformance.core.verdict import Verdict


def test_a_long_cause_ends_at_a_semicolon():
    long = f"{'a' * 100}; {'b' * 100}. Two."
    causes = {
        "One (a.b). Two.": "One (a.b).",
        "no full stop": "no full stop",
        long: f"{'a' * 100}.",
    }
    for why, cause in causes.items():
        assert known(entry(why=why))[0].cause == cause


def test_defects_are_in_groups_of_one_kind_the_worst_first():
    crash = entry("crash", 2, families=("*",), verdicts={"ragged": Verdict.CRASH})
    found = by_severity(known(crash, entry()))
    assert [(kind, [one.id for one in group]) for kind, group in found.items()] == [
        (Severity.TOKENS, ["lost-state"]),
        (Severity.CRASH, ["crash"]),
    ]


def test_the_newest_release_of_each_package_is_the_largest_bound():
    vlm = entry("vlm", 2, package="mlx-vlm", versions="==0.7.10")
    older = entry("older", 3, package="mlx-vlm", versions=">=0.7.0,<=0.7.9")
    assert releases(known(entry(), vlm, older)) == {"mlx-lm": "0.32.2", "mlx-vlm": "0.7.10"}


@pytest.mark.parametrize(
    ("verdicts", "kind"),
    [
        ((), Severity.HIDDEN),
        ((Verdict.LEAK, Verdict.COST), Severity.WASTE),
        ((Verdict.LEAK, Verdict.PROTOCOL), Severity.REPLY),
        ((Verdict.PROTOCOL, Verdict.DRIFT), Severity.DRIFT),
        ((Verdict.CRASH, Verdict.POLICY), Severity.CRASH),
        ((Verdict.HANG,), Severity.CRASH),
        ((Verdict.CRASH, Verdict.NAN), Severity.TOKENS),
        ((Verdict.ORACLE,), Severity.TOKENS),
    ],
)
def test_the_worst_verdict_decides(verdicts, kind):
    assert severity_of(verdicts) is kind


def test_every_verdict_of_a_defect_has_a_kind():
    no_defect = {Verdict.EXACT, Verdict.TIE, Verdict.UNSUPPORTED, Verdict.VACUOUS}
    kinds = {verdict: severity_of([verdict]) for verdict in set(Verdict) - no_defect}
    assert [verdict for verdict, kind in kinds.items() if kind is Severity.HIDDEN] == []


def test_what_is_worse_weighs_no_less():
    weights = [kind.weight for kind in Severity]
    assert weights == sorted(weights, reverse=True)
    assert len({kind.label for kind in Severity}) == len(Severity)
