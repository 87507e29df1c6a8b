"""How a schedule fails, as a script can show it."""

from types import SimpleNamespace

import pytest

from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.verdict import Finding, Verdict
from conformance.tools.repro import observing
from conformance.tools.repro.found import Kind

ORACLE_ONLY = SimpleNamespace(oracle_only=True)


@pytest.fixture
def differing_at(monkeypatch):
    """The single stream differs from the pass without a cache from that output token on."""

    def at(step):
        finding = Finding(
            Verdict.ORACLE, "stateless", "differs", schedule="s", request_id="a", step=step
        )
        outcome = SimpleNamespace(findings=(finding,))
        monkeypatch.setattr(observing, "judge_oracle", lambda *_: outcome)

    return at


@pytest.mark.parametrize(("tokens", "shown"), [(3, True), (2, False)])
def test_a_difference_after_the_last_token_is_none(differing_at, tokens, shown):
    differing_at(2)
    schedule = Schedule("s", (Arrival((Request("a", (1,), tokens),)),))
    seen = observing.observe(None, None, ORACLE_ONLY, schedule)
    assert (seen is not None) == shown
    if seen is not None:
        assert seen[0].kind == Kind(batch=False, oracle="stateless")
