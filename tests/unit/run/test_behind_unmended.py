"""Behind an entry without a mend, each request alone on a model loaded anew must be right."""

import pytest
from miniatures.right import ContinuousBatching
from miniatures.sessions import toy_session
from miniatures.wrong import AttendsToPadding, CallsEveryEndStop

from conformance.checks.expectations import Defect, Expectations
from conformance.core.verdict import CaseId, Verdict
from conformance.run.behind_unmended import behind_unmended
from conformance.run.case_judge import CaseJudge

RAGGED = CaseId("wrong", "calm", "ragged", "float32", 0)


def entry(verdict, **changes):
    fields = {
        "id": "padding-attended",
        "engines": ("wrong",),
        "families": ("calm",),
        "why": "it is",
    }
    fields |= {"package": "toy", "versions": ">=1", "where": "wrong.py:1", "in_workloads": False}
    return Defect(**fields, **{"verdicts": {"ragged": verdict}, "right_alone": True, **changes})


class Both(AttendsToPadding, CallsEveryEndStop):
    """Behind the padding, which one request does not have, the reason of each end is wrong."""


def judged(engine, *entries):
    session = toy_session({"wrong": engine})
    return CaseJudge(session, Expectations(entries)).judged(RAGGED, session.run(RAGGED))


def test_what_a_request_shows_alone_is_found_behind_an_entry_without_a_mend():
    found = judged(Both, entry(Verdict.PROTOCOL))
    assert (found.verdict, found.expected) == (Verdict.PROTOCOL, False)
    assert "padding-attended: a request alone is protocol" in found.evidence[-1].what
    alone = [finding for finding in found.evidence if finding.schedule == "alone"]
    assert alone
    assert not any(finding.known for finding in alone)


def test_an_entry_that_does_not_say_so_is_not_checked():
    assert judged(Both, entry(Verdict.PROTOCOL, right_alone=False)).expected


def test_requests_that_are_right_alone_leave_the_case_as_it_is():
    found = judged(AttendsToPadding, entry(Verdict.DIVERGED))
    assert (found.expected, found.unmended) == (True, ("padding-attended",))
    assert not any(finding.mended for finding in found.evidence)


@pytest.mark.parametrize("hidden", [(), ("no_such_schedule",)])
def test_only_requests_of_hidden_schedules_are_run(hidden):
    session = toy_session({"wrong": CallsEveryEndStop})
    assert behind_unmended(session, RAGGED, hidden) == ()


def test_each_request_gets_a_model_of_its_own(monkeypatch):
    session = toy_session({"wrong": ContinuousBatching})
    library = session.registry.libraries["toy"]
    loaded, load = [], library.load
    monkeypatch.setattr(
        type(library), "load", lambda self, *a, **k: loaded.append(1) or load(*a, **k)
    )
    (first, *_) = session.run(RAGGED).schedules
    before = len(loaded)
    behind_unmended(session, RAGGED, (first.name,))
    assert len(loaded) - before > 1
