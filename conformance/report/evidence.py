"""Everything known about one case, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.core.plain_text import plain_line
from conformance.core.verdict import CaseResult, Finding, ScheduleResult, WitnessResult
from conformance.report.message import (
    UNKNOWN_CAUSE,
    defect_commands,
    measures,
    rerun_command,
    where,
)
from conformance.report.outcome import duration


def evidence_text(result: CaseResult) -> str:
    """Every finding, schedule, forward call count and padding of a case, as lines of plain text."""
    parts = (_head(result), _findings(result), _schedules(result), _witnesses(result.witnesses))
    return "\n\n".join(text for text in map("\n".join, parts) if text)


def _head(result: CaseResult) -> Iterator[str]:
    wanted = "as expected" if result.expected else "NOT expected"
    known = f" (known: {result.known})" if result.known else ""
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    versions, known = plain_line(versions), plain_line(known)
    yield f"{result.verdict}: {result.case} - {wanted}{known}"
    yield from (f"  defect:     {plain_line(command)}" for command in defect_commands(result))
    yield from _mended(result)
    yield f"  max diff:   {_nats(result.max_abs_diff)}"
    yield f"  noise:      {_nats(result.noise)}"
    yield f"  ratio:      {_number(result.ratio)} (worst difference over its noise)"
    yield f"  bad step:   {_number(result.first_bad_step)} (first output token with a finding)"
    model = duration(result.forward_seconds)
    yield f"  time:       {duration(result.seconds)}, of which {model} in the model"
    yield f"  device:     {plain_line(result.device)}"
    yield f"  versions:   {versions}"
    yield f"  rerun:      {rerun_command(result)}"


def _mended(result: CaseResult) -> Iterator[str]:
    """The result of the case with its known defects mended, and the defects without a mend."""
    if result.mended:
        where = f" in {', '.join(result.mended.schedules)}" if result.mended.schedules else ""
        defects = ", ".join(result.mended.defects)
        alone = "; not run as released" if result.mended.alone else ""
        yield f"  mended:     {result.mended.verdict}{where}, with {defects}{alone}"
    if result.unmended:
        yield f"  no mend:    {', '.join(result.unmended)}"


def _findings(result: CaseResult) -> Iterator[str]:
    yield f"findings: {len(result.evidence) or 'none'}"
    for number, finding in enumerate(result.evidence, start=1):
        # Further lines of a text stay below its first, so as not to look like separate lines.
        yield from (line.replace("\n", "\n       ") for line in _finding(number, finding))


def _finding(number: int, finding: Finding) -> Iterator[str]:
    known = f", known: {finding.known}" if finding.known else ""
    known += f", with {finding.mended} mended" if finding.mended else ""
    yield f"  {number}. {finding.verdict} (check {finding.check}{known}): {finding.what}"
    yield f"     where:    {where(finding)}"
    if finding.expected or finding.got:
        yield f"     expected: {finding.expected or '?'}; got {finding.got or '?'}"
    if numbers := measures(finding):
        yield f"     measured: {numbers}"
    yield f"     cause:    {finding.cause or UNKNOWN_CAUSE}"


def _schedules(result: CaseResult) -> Iterator[str]:
    yield f"schedules: {len(result.schedules) or 'none recorded'}"
    width = max((len(schedule.name) for schedule in result.schedules), default=0)
    for schedule in result.schedules:
        yield f"  {schedule.name:<{width}}  {_work(schedule)}"


def _witnesses(witnesses: Sequence[WitnessResult]) -> Iterator[str]:
    """Which schedules showed each witness, or why it is not required."""
    if not witnesses:
        return
    shown = sum(bool(witness.schedules) for witness in witnesses)
    yield f"witnesses: {shown} of {len(witnesses)} shown"
    width = max(len(witness.name) for witness in witnesses)
    for witness in witnesses:
        excused = f"not required: {witness.excused}" if witness.excused else "MISSING"
        yield f"  {witness.name:<{width}}  {', '.join(witness.schedules) or excused}"


def _work(schedule: ScheduleResult) -> str:
    computed = schedule.real_positions + schedule.padded_positions
    share = f"{schedule.padded_positions / computed:.0%}" if computed else "0%"
    return (
        f"{schedule.verdict:<11} {schedule.forward_calls:>4} forward calls "
        f"in {duration(schedule.forward_seconds)}, {computed} positions computed, "
        f"{schedule.padded_positions} of them padding ({share}){_kept(schedule)}"
    )


def _kept(schedule: ScheduleResult) -> str:
    """The size of quantized caches relative to unquantized ones."""
    if schedule.cache_share is None or schedule.quantized_share is None:
        return ""
    return (
        f", caches {schedule.cache_share:.2f} of unquantized, "
        f"{schedule.quantized_share:.2f} in quantized layers ({1 / schedule.quantized_share:.1f}x)"
    )


def _nats(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3g} nats"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
