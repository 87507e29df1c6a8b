"""Runs one engine on one tiny family for a few steps; the result is one sentence."""

from __future__ import annotations

import enum
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.core.engine import Engine
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ModelError, Unsupported
from conformance.core.failures import failure_of, says_unsupported
from conformance.core.schedule import Schedule
from conformance.core.verdict import CaseId, Verdict
from conformance.reference.subject import Subject
from conformance.run.judging.judge import brief_for, judge_batched, worst
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.scenarios import Scenario
from conformance.scenarios.build import SHORT, TWO, text_request, together
from conformance.tools.smoke.contract import Broken, Wrong, keep_contract

_DTYPE = "float32"
# Prompts and outputs of different lengths cause padding and make one row leave early.
_OUTPUTS = {SHORT: 3, TWO: 5}


class State(enum.StrEnum):
    """The outcome: what is at fault, if anything."""

    FINE = "fine"
    UNSUPPORTED = "unsupported"
    MODEL = "model fails as a single stream"
    WRONG = "engine wrong"
    BROKEN = "adapter broken"


@dataclass(frozen=True)
class Smoke:
    """The result of one engine on one family, and the command that repeats the run."""

    engine: str
    family: str
    state: State
    what: str
    options: tuple[str, ...] = ()

    @property
    def rerun(self) -> str:
        """The command that repeats only this run."""
        named = ("--engine", self.engine, "--family", self.family)
        return shlex.join(["conformance", "smoke", *named, *self.options])

    def __str__(self) -> str:
        text = f"{self.engine} on {self.family}: {self.state}: {self.what}"
        return text if self.state is State.FINE else f"{text}; again: {self.rerun}"


def smoke(registry: Registry, engine: str, family: str, *, options: Sequence[str] = ()) -> Smoke:
    """Run ``engine`` on ``family`` for a few steps.

    The adapter is checked first: if it violates the protocol, the engine cannot be judged.

    Args:
        options: command-line options, which a rerun needs too.
    """
    try:
        state, what = _tried(registry, CaseId(engine, family, "smoke", _DTYPE, 0))
    except Unsupported as error:
        state, what = State.UNSUPPORTED, str(error)
    except ModelError as error:
        state, what = State.MODEL, str(error)
    return Smoke(engine, family, state, what, tuple(options))


def _tried(registry: Registry, case: CaseId) -> tuple[State, str]:
    kind = registry.engines[case.engine]
    try:
        subject = Session(registry).subject(case)
        schedule, want = _two_rows(subject, kind)
    except ModelError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the library raises is the result
        state = State.UNSUPPORTED if says_unsupported(error) else State.MODEL
        return state, str(failure_of(error, "decoding one request alone"))
    return _state(subject, kind, schedule, want)


def _two_rows(subject: Subject, kind: type[Engine]) -> tuple[Schedule, dict[str, tuple[int, ...]]]:
    """The schedule, and the tokens of its single streams."""
    brief = brief_for(subject, kind, 0)
    requests = [text_request(brief, f"r{n}", n, max_tokens=out) for n, out in _OUTPUTS.items()]
    want = {r.request_id: brief.solo(r, EngineOptions()).tokens for r in requests}
    return Schedule("two_rows", (together(*requests),)), want


def _state(
    subject: Subject, kind: type[Engine], schedule: Schedule, want: dict[str, tuple[int, ...]]
) -> tuple[State, str]:
    requests = schedule.requests
    first = subject.oracle.solo(requests[0], schedule.options, schedule)
    assert first.logprobs is not None
    try:
        keep_contract(kind, subject.model_for(kind), requests, want, first.logprobs.shape[1])
    except Broken as error:
        return State.BROKEN, str(error)
    except Wrong as error:
        return State.WRONG, str(error)
    scenario = Scenario("smoke", 0, "two rows", frozenset(), lambda _: [schedule])
    outcome = judge_batched(subject, kind, scenario, [schedule])
    bad = [finding for finding in outcome.findings if not finding.verdict.good]
    if not bad:
        return (
            State.FINE,
            f"{len(requests)} rows gave what each gives as a single stream ({outcome.verdict})",
        )
    # What an engine says beside its tokens comes after them.
    bad = [finding for finding in bad if finding.check != "claims"] or bad
    verdict = worst(bad)
    finding = next(found for found in bad if found.verdict is verdict)
    if verdict is Verdict.UNSUPPORTED:
        return State.UNSUPPORTED, finding.got or finding.what
    at_fault = (Verdict.PROTOCOL, Verdict.VACUOUS)
    state = State.BROKEN if verdict in at_fault else State.WRONG
    about = f"request {finding.request_id!r}: " if finding.request_id else ""
    return state, f"{verdict}: {about}{finding.what}"
