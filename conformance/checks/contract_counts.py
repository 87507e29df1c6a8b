"""Counts for contracts in one schedule: counted in recordings, never timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from conformance.checks.play import Play
from conformance.checks.policy import cache_shares
from conformance.core.contracts import Cost, contracts
from conformance.core.engine import PrefixReuse
from conformance.core.phases import ServedStep
from conformance.core.schedule import Stage
from conformance.core.trace import Mode, Step, Trace
from conformance.core.verdict import Finding, Verdict
from conformance.scenarios.cost import LATE
from conformance.scenarios.foreseen import foreseen

_GONE = (Stage.FINISHED, Stage.REMOVED)
# Bytes of an element of a cache, by dtype.
_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}
# Steps at the start and end of a run of the same rows.
_EDGE = 2
_DIGITS = 4

Count = tuple[float, tuple[str, ...]]
"""A count, and its places if it is counted by place."""


def check_cost(play: Play) -> list[Finding]:
    """``cost`` for each contract that a schedule broke."""
    return [_finding(play, cost) for cost in costs(play) if not cost.kept]


def costs(play: Play) -> tuple[Cost, ...]:
    """The counts for the contracts that the schedule names, as far as the engine shows them."""
    trace = _looked_at(play)
    if trace is None:
        return ()
    found = []
    for name in play.schedule.contracts:
        count = _COUNTS[name](play, trace)
        if count is not None:
            limit = contracts()[name].limit_of(play.engine)
            found.append(Cost(name, round(count[0], _DIGITS), limit, count[1]))
    return tuple(found)


def _looked_at(play: Play) -> Trace | None:
    """The first whole run, preferably a free one: a forced run chooses tokens in other calls."""
    whole = [t for t in play.traces if t.failure is None and not t.out_of_steps]
    return min(whole, key=lambda t: t.mode is not Mode.FREE, default=None)


def _needed(play: Play, trace: Trace) -> int:
    """Positions that the requests need: the last token of an answer is never fed."""
    requests = play.schedule.requests
    return sum(len(r.prompt) + max(len(trace.events(r.request_id)) - 1, 0) for r in requests)


def _computed(trace: Trace) -> int:
    return sum(call.positions for call in trace.computed)


def _positions(play: Play, trace: Trace) -> Count | None:
    if trace.served:
        share = prefilled(play, trace)
        return None if share is None else (share, ())
    return (_computed(trace) / _needed(play, trace), ()) if trace.computed else None


def _rows(play: Play, trace: Trace) -> Count | None:
    """Prompts of such a schedule are equally long, so that nothing is padded."""
    if not trace.computed:
        return None
    return (_computed(trace) - _needed(play, trace)) / len(play.schedule.requests), ()


def _gone(play: Play, trace: Trace) -> Count | None:
    if not (play.staged and trace.forwards):
        return None
    steps = 0
    for step in trace.steps:
        live = sum(stage not in _GONE for stage in step.stages.values())
        steps += max((call.batch for call in step.forwards), default=0) > live
    return steps, ()


def _beside_late(trace: Trace) -> list[Step]:
    """The steps from the late request's arrival to its first token, inclusive."""
    found = []
    for step in trace.steps:
        if LATE in step.stages or LATE in step.output.processed:
            found.append(step)
        if any(event.request_id == LATE for event in step.output.events):
            break
    return found


def _first_token(play: Play, trace: Trace) -> Count | None:
    if not play.staged or not trace.events(LATE):
        return None
    return len(beside_late(trace) if trace.served else _beside_late(trace)), ()


def _others_wait(play: Play, trace: Trace) -> Count | None:
    if not play.staged:
        return None
    if trace.served:
        return waited(beside_late(trace)), ()
    steps = 0
    for step in _beside_late(trace):
        got = {event.request_id for event in step.output.events}
        steps += bool(set(step.in_stage(Stage.DECODE)) - {LATE} - got)
    return steps, ()


def _others_calls(play: Play, trace: Trace) -> Count | None:
    if not play.staged:
        return None
    if trace.served:
        return most_beside(beside_late(trace)), ()
    beside = (step for step in _beside_late(trace) if set(step.in_stage(Stage.DECODE)) - {LATE})
    return max((max(len(step.forwards) - 1, 0) for step in beside), default=0), ()


def _host_reads(play: Play, trace: Trace) -> Count | None:
    """Each place with its number of reads per step."""
    run = _longest_run(trace)[_EDGE:-_EDGE]
    if play.alone is None or not run or any(step.reads is None for step in run):
        return None
    places = Counter(place for step in run for place in step.reads or ())
    total = sum(places.values())
    where = tuple(f"{place}, {count / len(run):g} a step" for place, count in places.most_common())
    return total / len(run) - play.alone, where


def _longest_run(trace: Trace) -> list[Step]:
    """The longest series of steps in which the same rows decode and each gets a token."""
    longest: list[Step] = []
    run: list[Step] = []
    for step in trace.steps:
        rows = set(step.in_stage(Stage.DECODE))
        same = not run or rows == set(run[-1].in_stage(Stage.DECODE))
        each = rows == {event.request_id for event in step.output.events}
        fits = len(rows) > 1 and each and not step.output.processed
        run = [*(run if same else ()), step] if fits else []
        longest = max(longest, run, key=len)
    return longest


def _quantized(play: Play, trace: Trace) -> Count | None:
    """For float32, 8 bits with a scale and a bias for each 64 elements are 9 bits of 32."""
    kv, plain = play.schedule.options.kv, play.plain
    shares = cache_shares(trace, plain) if plain is not None else None
    if kv is None or plain is None or shares is None:
        return None
    dtypes = {dtype for step in plain.steps for layer in step.layers for dtype in layer.dtypes}
    widths = {_WIDTHS.get(dtype) for dtype in dtypes}
    width = widths.pop() if len(widths) == 1 else None
    if width is None:
        return None
    formula = (kv.bits / 8 + 2 * width / kv.group_size) / width
    return shares.quantized / formula, ()


def _bytes_left(_: Play, trace: Trace) -> Count | None:
    left = trace.cache_bytes_at_end
    return None if left is None else (left, ())


def _at_rest(_: Play, trace: Trace) -> Count | None:
    over = [step.output.left_over for step in trace.steps if step.output.left_over is not None]
    return (over[-1], ()) if over else None


def _left(play: Play, trace: Trace) -> Count | None:
    share = share_for_nobody(play, trace)
    return None if share is None else (share, ())


def _arrays(_: Play, trace: Trace) -> Count | None:
    return _growth([s.alive.arrays for s in _decoding(trace) if s.alive is not None])


def _graph(_: Play, trace: Trace) -> Count | None:
    return _growth([s.pending for s in _decoding(trace) if s.pending is not None])


def _decoding(trace: Trace) -> Iterator[Step]:
    return (s for s in trace.steps if s.in_stage(Stage.DECODE) and not s.output.processed)


def _growth(counts: Sequence[int]) -> Count | None:
    """By how much the maximum of the last third exceeds that of the third before."""
    third = len(counts) // 3
    if not third:
        return None
    return max(max(counts[2 * third : -1]) - max(counts[third : 2 * third]), 0), ()


def _prefix(play: Play, trace: Trace) -> Count | None:
    reused: dict[str, int] = {}
    for step in trace.steps:
        reused |= step.output.reused
    kept = foreseen(play.schedule, PrefixReuse())
    return sum(max(count - reused.get(name, 0), 0) for name, count in kept.items()), ()


_COUNTS: dict[str, Callable[[Play, Trace], Count | None]] = {
    "positions": _positions,
    "rows": _rows,
    "gone": _gone,
    "left": _left,
    "at_rest": _at_rest,
    "first_token": _first_token,
    "others_wait": _others_wait,
    "others_calls": _others_calls,
    "host_reads": _host_reads,
    "bytes_8": _quantized,
    "bytes_4": _quantized,
    "bytes_left": _bytes_left,
    "arrays": _arrays,
    "graph": _graph,
    "prefix": _prefix,
}


def _finding(play: Play, cost: Cost) -> Finding:
    contract = contracts()[cost.contract]
    places = f": {'; '.join(cost.where)}" if cost.where else ""
    return Finding(
        Verdict.COST,
        "contract_counts",
        f"{contract.text}: {cost.count:g} {contract.unit}, at most {cost.limit:g} are needed"
        + places,
        schedule=play.schedule.name,
        expected=f"at most {cost.limit:g} ({contract.why})",
        got=f"{cost.count:g} {contract.unit}",
        cause=f"work or memory that the answer does not need: contract `{cost.contract}`",
    )


# Counts of a server's own steps: a client may see a token later than the server generated it, so
# they depend only on the order of these steps.
def prefilled(play: Play, trace: Trace) -> float | None:
    """Positions of pieces divided by those of the prompts; ``None`` unless pieces shared a pass.

    The last token of a prompt is a piece by itself, like a decode step.
    """
    pieces = [call for step in trace.served for call in step.forwards if call.length > 1]
    if max((call.batch for call in pieces), default=0) < 2:
        return None
    prompts = sum(len(request.prompt) - 1 for request in play.schedule.requests)
    return sum(call.positions for call in pieces) / prompts


def beside_late(trace: Trace) -> list[ServedStep]:
    """The steps from a prompt's first piece next to a decoding row to its first token."""
    found: list[ServedStep] = []
    for step in trace.served:
        piece = any(call.length > 1 for call in step.forwards)
        if found or (piece and _decodes(step)):
            found.append(step)
            if any(call.batch > 1 for call in step.forwards):
                break
    return found


def _decodes(step: ServedStep) -> bool:
    return any(call.length == 1 for call in step.forwards)


def waited(steps: list[ServedStep]) -> int:
    """How many of the steps gave no row a token."""
    return sum(not _decodes(step) for step in steps)


def most_beside(steps: list[ServedStep]) -> int:
    """The most model calls in one of the steps, besides the call for the decoding rows."""
    return max((len(step.forwards) - 1 for step in steps), default=0)


def share_for_nobody(play: Play, trace: Trace) -> float | None:
    """The share of a departed client's remaining tokens that were still computed.

    The engine's own row and the departed one have all slots: until the next prompt begins, any work
    for more than one row is wasted.
    """
    gone = [name for step in trace.steps for name in step.removed_from]
    steps = [step for step in trace.served if step.left]
    if not gone or not steps:
        return None
    computed = 0
    for step in steps:
        if any(call.length > 1 for call in step.forwards):
            break
        computed += sum(call.batch for call in step.forwards) - 1
    (request,) = (r for r in play.schedule.requests if r.request_id == gone[0])
    return max(computed, 0) / (request.max_tokens - len(trace.events(gone[0])))
