"""The message of a failure: what - where - expected and got - likely cause - rerun command."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from conformance.core.excused import not_offered
from conformance.core.invocation import command_about
from conformance.core.verdict import CaseResult, Finding, Verdict

RULE = "expectations"
"""The check name of findings about a broken rule of the expectations."""

CHANGED = "known as"
"""How a finding of that check begins about a defect whose function changed in the tested code."""

DIAGNOSIS = "diagnosis"
"""The check name of the finding that decides between model and engine."""

NEEDS = "needs"
"""The check name of the finding that says what a workload needs to fail."""

MENDS = "mends"
"""The check name of the finding about a mend without an effect."""

ASIDE = (RULE, DIAGNOSIS, NEEDS)
"""The check names of findings that say nothing about the run itself."""

_TEXT = "the text of "
"""How findings about an answer's text begin."""

_WEIGHED = ("memory ", "bytes ")
"""How findings about memory begin."""
_NAMED = 2
"""The most findings that are named beside the one that is shown."""

UNKNOWN_CAUSE = "not known; `conformance show` prints the whole evidence"


def failure_message(
    result: CaseResult, *, options: Sequence[str] | None = None, rerun: str = ""
) -> str:
    """Six lines of plain text about a case with an unexpected verdict.

    Args:
        result: the result of that case. Shows its worst new finding and the number of others.
        options: options of the run that a rerun needs, too; ``None``: those of the result's
            invocation.
        rerun: the command, if it is not ``conformance show``.
    """
    verdict = new_verdict(result)
    others = [f for f in result.evidence if f.verdict is result.verdict]
    known = verdict is not result.verdict and all(finding.known for finding in others)
    beside = f" (beside the known {result.verdict})" if known else ""
    lines = [f"{verdict}: {result.case}{beside}"]
    parts = message_parts(result, options=options, rerun=rerun)
    lines += [f"  {label + ':':<10}{_indented(text)}" for label, text in parts]
    return "\n".join(lines)


def message_parts(
    result: CaseResult, *, options: Sequence[str] | None = None, rerun: str = ""
) -> tuple[tuple[str, str], ...]:
    """The five parts of ``failure_message``, each with its label."""
    finding = worst(result)
    return (
        ("what", _what(result, finding)),
        ("where", where(finding) if finding else "the whole case"),
        ("expected", _expected_and_got(result, finding)),
        ("cause", _cause(result, finding)),
        ("rerun", rerun or rerun_command(result, options=options)),
    )


def rerun_command(result: CaseResult, *, options: Sequence[str] | None = None) -> str:
    """The command that reruns only this case and prints all its evidence."""
    found = options_of(result) if options is None else options
    return command_about("show", result.case, found)


def options_of(result: CaseResult) -> tuple[str, ...]:
    """The options of the run that a command about the case needs, too."""
    return result.invocation.options if result.invocation else ()


def defect_commands(result: CaseResult) -> tuple[str, ...]:
    """The commands that explain the known defects, or refusals, that the result names."""
    names = result.known.split(", ") if result.known else ()
    options = options_of(result)
    return tuple(command_about("show defects", name, options, needs=False) for name in names)


def worst(result: CaseResult) -> Finding | None:
    """The finding that matters most, of those that count."""
    return worst_of(_counting(result))


def _counting(result: CaseResult) -> list[Finding]:
    """The findings about the run itself.

    If the verdict is unexpected, known findings are not the reason, so only new ones count; of a
    schedule that was run again with known defects mended, those that are left then.
    """
    seen = [finding for finding in result.evidence if finding.check not in ASIDE]
    refused = not_offered(seen)  # what a server does not offer is no failure
    seen = [finding for finding in seen if finding.schedule not in refused] or seen
    if not result.expected and not result.verdict.good:
        seen = [finding for finding in seen if not finding.known and not finding.verdict.good]
        again = result.mended.schedules if result.mended else ()
        left = [finding for finding in seen if finding.mended or finding.schedule not in again]
        # A mend without an effect says nothing of the other findings.
        seen = left if any(finding.check != MENDS for finding in left) else seen
    return seen


def worst_of(seen: Sequence[Finding]) -> Finding | None:
    """The first finding that matters most; ``_order`` is the only rule of it.

    Args:
        seen: findings that are about the run itself.
    """
    return max(seen, key=_order, default=None)


class _Kind(enum.IntEnum):
    """What a finding is about, from what may follow from the others to what ends a run."""

    REST = 0
    TEXTS = 1  # from which entries of logprobs and counts may follow
    HUNG = 2  # which a loaded machine may be, too
    ENDS = 3  # an answer goes on after its end, or ends before it
    UNANSWERED = 4  # a thread that ended, an exception: the engine went on
    DRAWS = 5
    TOKENS = 6
    ENDED = 7  # nan, oracle, crash

    @classmethod
    def of(cls, finding: Finding) -> _Kind:
        if finding.verdict is Verdict.HANG:
            return cls.HUNG
        if finding.verdict.severity > Verdict.PROTOCOL.severity:
            return cls.ENDED
        if finding.verdict in {Verdict.DIVERGED, Verdict.UNSTABLE}:
            return cls.DRAWS if finding.check == "statistics" else cls.TOKENS
        if finding.check == "protocol" and finding.step is not None:
            return cls.ENDS
        if finding.check == "failure" and finding.verdict is Verdict.PROTOCOL:
            return cls.UNANSWERED
        text = finding.check == "claims" and finding.what.startswith(_TEXT)
        return cls.TEXTS if text else cls.REST


def _order(finding: Finding) -> tuple[int, int]:
    """How much a finding matters: first its kind, then its severity."""
    return _Kind.of(finding), finding.verdict.severity


def new_verdict(result: CaseResult) -> Verdict:
    """The verdict of an unexpected case's new findings; the case's verdict if it has none."""
    finding = None if result.expected or result.verdict.good else worst(result)
    return finding.verdict if finding else result.verdict


def broken_rules(result: CaseResult) -> list[str]:
    """What the expectations want of the case but did not get, one sentence each."""
    found = (finding.what for finding in result.evidence if finding.check == RULE)
    return list(dict.fromkeys(found))


def changed_defects(result: CaseResult) -> list[str]:
    """The known defects that the case may show, each of which has another function here."""
    return [rule for rule in broken_rules(result) if rule.startswith(CHANGED)]


def where(finding: Finding) -> str:
    """Schedule, mode, request, step and row, as far as they are known."""
    parts = [
        f"schedule {finding.schedule!r}" if finding.schedule else "",
        f"{finding.mode} run" if finding.mode else "",
        f"request {finding.request_id!r}" if finding.request_id is not None else "",
        f"step {finding.step}" if finding.step is not None else "",
        f"row {finding.row}" if finding.row is not None else "",
    ]
    return ", ".join(part for part in parts if part) or "the whole case"


def measures(finding: Finding) -> str:
    """Difference, margin and noise with their unit, as far as they were measured."""
    values = [
        ("difference", finding.difference),
        ("margin", finding.margin),
        ("noise", finding.noise),
    ]
    known = [f"{name} {value:.3g}" for name, value in values if value is not None]
    return f"{', '.join(known)} nats" if known else ""


def _what(result: CaseResult, finding: Finding | None) -> str:
    rules = broken_rules(result)
    if result.verdict.good and not result.expected:
        return "; ".join(["passes, but the expectations name a defect for it", *rules])
    if finding is None:
        return "; ".join(rules) or f"the verdict is {result.verdict}, without a finding"
    return "; ".join([finding.what + _others(result, finding), *rules])


def _others(result: CaseResult, shown: Finding) -> str:
    """How many more findings there are, with known defects counted separately.

    The worst of each other kind is named: it may be another defect.
    """
    new = _counting(result)
    known = sum(bool(finding.known) for finding in result.evidence if finding not in new)
    more = len(new) - 1
    counts = [f"{more} more finding{'s' if more > 1 else ''}"] if more > 0 else []
    counts += [_named(finding, shown) for finding in _apart(new, shown)]
    counts += [f"{known} of known defects"] if known else []
    return f" (and {', '.join(counts)})" if counts else ""


def _apart(new: Sequence[Finding], shown: Finding) -> list[Finding]:
    """The worst finding about each thing that need not follow from the one that is shown."""
    found: dict[object, Finding] = {}
    for finding in sorted(new, key=_order, reverse=True):
        kind, about = _Kind.of(finding), _subject(finding)
        rest = kind <= _Kind.TEXTS or kind is _Kind.ENDS
        if about == _subject(shown) or (rest and _follows(finding, shown)):
            continue
        found.setdefault(about, finding)
    return list(found.values())[:_NAMED]


def _subject(finding: Finding) -> tuple[object, ...]:
    """What a finding is about: its kind and, of the first and the last kind, what was checked."""
    kind, (what, _, numbers) = _Kind.of(finding), finding.what.partition(", step ")
    if kind is _Kind.REST and finding.check == "claims":
        return kind, what if numbers else finding.cause or what
    if kind is _Kind.REST:
        return kind, finding.check
    return (kind, finding.verdict) if kind is _Kind.ENDED else (kind,)


def _follows(finding: Finding, shown: Finding) -> bool:
    """Whether a finding may follow from the one that is shown, if that is a wrong token.

    A count, a text, an end and a logprob may, but not what is reused or stays in memory.
    """
    weighed = finding.verdict is Verdict.LEAK or finding.what.startswith(_WEIGHED)
    if weighed or finding.check == "reuse" or _Kind.of(shown) <= _Kind.TEXTS:
        return False
    return finding.verdict is not Verdict.PROTOCOL or not _elsewhere(finding, shown)


def _elsewhere(finding: Finding, shown: Finding) -> bool:
    return finding.schedule not in ("", shown.schedule)


def _named(finding: Finding, shown: Finding) -> str:
    place = f" in schedule {finding.schedule!r}" if _elsewhere(finding, shown) else ""
    return f"one of them{place}: {finding.what}"


def _expected_and_got(result: CaseResult, finding: Finding | None) -> str:
    if finding is None or (result.verdict.good and not result.expected):
        wanted = "the verdict of the known defect" if result.known else "exact or tie"
        return f"{wanted}; got {result.verdict}"
    numbers = measures(finding)
    both = f"{finding.expected or 'exact or tie'}; got {finding.got or str(finding.verdict)}"
    return f"{both} ({numbers})" if numbers else both


def _cause(result: CaseResult, finding: Finding | None) -> str:
    likely = (finding.cause if finding else "") or _default_cause(result)
    diagnoses = [found.what for found in result.evidence if found.check in (DIAGNOSIS, NEEDS)]
    at_fault = [what for what in diagnoses if not what.startswith("undecided")]
    return "; ".join([likely, *at_fault])


def _default_cause(result: CaseResult) -> str:
    also = "".join(f"; {command}" for command in defect_commands(result))
    if result.verdict.good:
        fixed = "the defect is fixed, or this case no longer reaches it; remove or narrow the entry"
        return fixed + also
    if result.known and worst(result) is None:
        return f"a known defect shows otherwise than its entry says; correct the entry{also}"
    return UNKNOWN_CAUSE


def _indented(text: str) -> str:
    """Keep further lines of ``text`` under the first."""
    return text.strip().replace("\n", "\n" + " " * 12)
