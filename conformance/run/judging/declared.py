"""Findings about engines that do something else than they declare: prefixes, slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from conformance.checks import Play
from conformance.core.engine import Engine
from conformance.core.prefix_reuse import PrefixReuse
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict
from conformance.scenarios.foreseen import block_size, common

# A request with more tokens was in its slot between two steps.
_DECODES = 2


def undeclared(played: Play, engine: type[Engine]) -> list[Finding]:
    """Findings against ``Engine.prefix_reuse`` and ``Engine.slots``."""
    return [*_reuses(played, engine), *_slots(played, engine)]


def _slots(played: Play, engine: type[Engine]) -> list[Finding]:
    """A finding for each request that was in no slot, in another's, or in several."""
    return [
        Finding(
            Verdict.PROTOCOL,
            "protocol",
            what,
            schedule=played.schedule.name,
            mode=trace.mode,
            request_id=name or None,
            expected=f"each request keeps one of the {engine.slots} slots to its end",
            got=what,
            cause="the engine's declaration `slots` does not fit what it does",
        )
        for trace in (played.traces if engine.slots else ())
        for name, what in _misplaced(trace, engine.slots)
    ]


def _misplaced(trace: Trace, slots: int) -> Iterator[tuple[str, str]]:
    """The first wrong slot of each request, in words; no name if none of the slots is known."""
    events = Counter(event.request_id for step in trace.steps for event in step.output.events)
    if max(events.values(), default=0) > _DECODES and not any(step.rows for step in trace.steps):
        yield "", f"`rows()` never says which of the {slots} slots a request is in"
    own: dict[str, int] = {}
    said: set[str] = set()
    for step in trace.steps:
        for name, slot in step.rows.items():
            if name in said:
                continue
            others = [other for other, there in step.rows.items() if there == slot]
            kept = own.setdefault(name, slot)
            if not 0 <= slot < slots:
                what = f"{name} is in slot {slot}, of {slots}"
            elif kept != slot:
                what = f"{name} was in slot {kept} and is in slot {slot}"
            elif len(others) > 1:
                what = f"{' and '.join(sorted(others))} are in slot {slot}"
            else:
                continue
            said.add(name)
            yield name, what


def _reuses(played: Play, engine: type[Engine]) -> list[Finding]:
    """A finding for each prefix that was reused against the rules of ``Engine.prefix_reuse``."""
    rules = engine.prefix_reuse
    if rules == PrefixReuse():
        return []
    return [
        Finding(
            Verdict.PROTOCOL,
            "protocol",
            f"reused {count} tokens of the prompt, {why}",
            schedule=played.schedule.name,
            mode=trace.mode,
            request_id=name,
            expected=f"what the engine declares: PrefixReuse({rules})",
            got=f"{count} tokens",
            cause="the engine's declaration `prefix_reuse` does not fit what it does",
        )
        for trace in played.traces
        for name, count, why in _broken(trace, rules)
    ]


def _broken(trace: Trace, rules: PrefixReuse) -> Iterator[tuple[str, int, str]]:
    """Each reuse against the rules: the request, the number of tokens, the rule."""
    block = rules.block_size or block_size(trace.schedule)
    ended: list[tuple[int, ...]] = []
    for step in trace.steps:
        ended += [_sequence(trace, name) for name in step.removed_from]
        for name, count in step.output.reused.items():
            prompt = trace.schedule.request(name).prompt
            kept = max((common(prompt, sequence) for sequence in ended), default=0)
            if 0 < count < rules.smallest:
                yield name, count, f"fewer than the smallest that it declares, {rules.smallest}"
            elif rules.block_size and count % block:
                yield name, count, f"no whole blocks of {block}"
            elif rules.on_completion and count > kept:
                yield name, count, f"of which requests that had ended hold {kept}"
        events = step.output.events
        ended += [_sequence(trace, e.request_id) for e in events if e.finish_reason]


def _sequence(trace: Trace, name: str) -> tuple[int, ...]:
    """The prompt and the output of a request."""
    return trace.schedule.request(name).prompt + trace.stream(name).tokens
