"""What verdicts mean for a user."""

import pytest

from conformance.core.severity import Severity, severity_of
from conformance.core.verdict import Verdict


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
