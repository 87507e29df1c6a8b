"""The event stream: which events an engine may emit, when, and how often."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checks.play import Play
from conformance.core.schedule import Request, Stage
from conformance.core.trace import FinishReason, Mode, Stream, Trace
from conformance.core.verdict import Finding, Verdict

_EARLY, _ON = "a row ends too early", "a row decodes on after its end"
_CAUSES = dict.fromkeys(
    (_EARLY, _ON), "the row has another limit, or other stop sequences or tokens"
)


def check_protocol(play: Play) -> list[Finding]:
    """``protocol`` for lost, extra or duplicated tokens, events after the end, unknown ids.

    Which tokens are right is not checked here, with one exception: a forced run must return the
    tokens that it was fed, in order.
    """
    findings: list[Finding] = []
    for trace in play.traces:
        # In an unfinished run, missing events may still have been due.
        ended = trace.failure is None and not trace.out_of_steps
        violations = _violations(play, trace) if ended else _said(play, trace)
        for what, request_id, expected, got, *step in violations:
            findings.append(
                Finding(
                    Verdict.PROTOCOL,
                    "protocol",
                    what,
                    schedule=play.schedule.name,
                    mode=trace.mode,
                    request_id=request_id,
                    step=step[0] if step else None,
                    expected=expected,
                    got=got,
                    cause=_CAUSES.get(what, "the engine's lists are out of step with its rows"),
                )
            )
    return findings


# What is wrong, with which request, what is expected, what was got and, of an answer that ends
# elsewhere, the output token from which on it differs.
Violation = tuple[str, str | None, str, str] | tuple[str, str | None, str, str, int]


def _said(play: Play, trace: Trace) -> Iterator[Violation]:
    """Events that should not have been emitted."""
    yield from _strangers(play, trace)
    yield from _late_events(trace)


def _violations(play: Play, trace: Trace) -> Iterator[Violation]:
    yield from _said(play, trace)
    removed = play.schedule.removed_ids
    submitted = {name for step in trace.steps for name in step.stages}
    for request in play.schedule.requests:
        name, want = request.request_id, play.want[request.request_id]
        if name not in submitted:  # its arrival never fired: nothing to check
            continue
        got = trace.stream(name)
        if play.full_logprobs and got.tokens and got.logprobs is None:
            yield "events without logprobs", name, "logprobs with every token", "none with some"
        if name in removed:
            yield from _removed(trace, name, got, want)
        else:
            yield from _finished(play, trace, request, got, want)


def _strangers(play: Play, trace: Trace) -> Iterator[Violation]:
    known = {request.request_id for request in play.schedule.requests}
    for step in trace.steps:
        for event in step.output.events:
            if event.request_id not in known:
                yield (
                    f"a token for {event.request_id} in step {step.index}",
                    None,
                    "events of submitted requests only",
                    event.request_id,
                )


def _late_events(trace: Trace) -> Iterator[Violation]:
    over: dict[str, str] = {}
    for step in trace.steps:
        over.update({n: "removal" for n, s in step.stages.items() if s is Stage.REMOVED})
        for event in step.output.events:
            if event.request_id in over:
                yield (
                    f"a token after its {over[event.request_id]}, in step {step.index}",
                    event.request_id,
                    "silence",
                    f"token {event.token}",
                )
            if event.finish_reason is not None:
                over.setdefault(event.request_id, "finish")


def _removed(trace: Trace, name: str, got: Stream, want: Stream) -> Iterator[Violation]:
    if got.finish_reason is not None and len(got.tokens) < len(want.tokens):
        reason = str(got.finish_reason)
        yield "a removed request reports a finish", name, "no finish reason", reason
    if trace.mode is Mode.FORCED and got.tokens != want.tokens[: len(got.tokens)]:
        yield "tokens other than fed", name, _show(want.tokens), _show(got.tokens)


def _finished(
    play: Play, trace: Trace, request: Request, got: Stream, want: Stream
) -> Iterator[Violation]:
    name = request.request_id
    if trace.mode is Mode.FORCED and got.tokens != want.tokens:
        shorter, longer = sorted((got.tokens, want.tokens), key=len)
        what = "tokens other than fed"
        if got.finish_reason is not None and longer[: len(shorter)] == shorter:
            what = _EARLY if shorter is got.tokens else _ON
        yield what, name, _show(want.tokens), _show(got.tokens), len(shorter)
        return
    # After a different token a free run may stop elsewhere; an incomplete answer has no such token.
    if want.finish_reason != got.finish_reason and _parted(got.tokens, want.tokens):
        return
    where, at = _end(play, got.tokens, want.tokens)
    if got.finish_reason != want.finish_reason:
        what = f"wrong finish reason{where}"
        yield (what, name, str(want.finish_reason), str(got.finish_reason), *at)
    elif len(got.tokens) != len(want.tokens) and not _stopped(request, got, want):
        what = f"wrong number of tokens{where}"
        yield (what, name, str(len(want.tokens)), str(len(got.tokens)), *at)


def _end(
    play: Play, got: tuple[int, ...], want: tuple[int, ...]
) -> tuple[str, tuple[int] | tuple[()]]:
    """Where one of two answers that begin alike goes on, in words if it has any; and that step."""
    if len(got) == len(want):
        return "", ()
    step, longer = min(len(got), len(want)), max(got, want, key=len)
    word = play.word(longer[step])
    named = f"word {step}, {word!r}," if word else f"output token {step}, {longer[step]},"
    if longer is got:
        return f": {named} comes after the end of the single stream", (step,)
    return f": the answer ends before {named} of the single stream", (step,)


def _stopped(request: Request, got: Stream, want: Stream) -> bool:
    """Whether a row stopped after another token, or left out just the sequence that stopped it."""
    if got.finish_reason is not FinishReason.STOP:
        return False
    return _parted(got.tokens, want.tokens) or want.tokens[len(got.tokens) :] in request.stop


def _parted(got: tuple[int, ...], want: tuple[int, ...]) -> bool:
    """Whether a token differs, rather than being missing or extra at the end."""
    return any(mine != theirs for mine, theirs in zip(got, want, strict=False))


def _show(tokens: tuple[int, ...]) -> str:
    return f"{len(tokens)} tokens {list(tokens)}"
