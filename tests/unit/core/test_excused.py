"""What a server at a URL does not offer decides only where it offers nothing of a case."""

from conformance.core.excused import excused, not_offered, offered
from conformance.core.verdict import Finding, Verdict

LACKS = "NotOffered: top_logprobs: it is ignored"


def finding(schedule, verdict=Verdict.UNSUPPORTED, got=LACKS):
    return Finding(verdict, "failure", "what", schedule=schedule, got=got)


def test_other_schedules_decide():
    findings = [finding("fields"), finding("alone", Verdict.PROTOCOL, "x")]
    assert offered(findings, ["alone", "fields"]) == findings[1:]
    assert offered(findings[:1], ["alone", "fields"]) == []
    assert offered(findings[:1], ["fields"]) == findings[:1]
    assert not_offered(findings) == {"fields": "top_logprobs: it is ignored"}


def test_what_a_library_refuses_counts_as_before():
    refused = [finding("fields", got="Unsupported: no heads")]
    assert offered(refused, ["alone", "fields"]) == refused
    assert not_offered(refused) == {}
    assert not excused(Verdict.UNSUPPORTED, refused)
    assert excused(Verdict.UNSUPPORTED, [finding("fields")])
