"""What the rules of ``PrefixReuse`` let an engine reuse, predicted from a schedule alone.

Each function below ``foreseen`` belongs to the witness with its name in ``reuse_witnesses``:
whether a schedule can show it under these rules.
"""

from __future__ import annotations

from collections.abc import Callable

from conformance.core.engine import PrefixReuse
from conformance.core.schedule import Arrival, Schedule, Stage

# Whether a schedule can show a witness on an engine with these rules.
Reach = Callable[[Schedule, PrefixReuse], bool]


def common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Length of the prefix that both share."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def foreseen(schedule: Schedule, rules: PrefixReuse) -> dict[str, int]:
    """For each request, the number of its prompt tokens that were kept when it arrives."""
    caching = schedule.options.prefix_caching
    counts = {request.request_id: 0 for request in schedule.requests}
    earlier: list[tuple[str, tuple[int, ...]]] = []
    for arrival in schedule.arrivals:
        live = _decoding(arrival) if rules.on_completion else ""
        kept = [prompt for name, prompt in earlier if name != live]
        for request in arrival.requests if caching is not None else ():
            # The last token of a prompt is always computed.
            ends = [min(common(request.prompt, p), len(request.prompt) - 1) for p in kept]
            longest = max(ends, default=0)
            counts[request.request_id] = rules.whole(longest, block_size(schedule))
        earlier += [(request.request_id, request.prompt) for request in arrival.requests]
    return counts


def block_size(schedule: Schedule) -> int:
    """Tokens of a block, by the options of the schedule."""
    caching = schedule.options.prefix_caching
    return caching.block_size if caching is not None else 1


def hit(schedule: Schedule, rules: PrefixReuse) -> bool:
    """Some request reuses something."""
    return any(foreseen(schedule, rules).values())


def hit_of_part(schedule: Schedule, rules: PrefixReuse) -> bool:
    """Some request reuses a part of an earlier prompt."""
    return part_reused(schedule, foreseen(schedule, rules))


def part_reused(schedule: Schedule, reused: dict[str, int]) -> bool:
    """Whether such a reuse ends within a block, or within a prompt that was kept whole."""
    prompts = {r.request_id: r.prompt for r in schedule.requests}
    names = list(prompts)
    for place, name in enumerate(names):
        prompt, count = prompts[name], reused.get(name, 0)
        if not 0 < count < len(prompt) - 1:
            continue
        earlier = [(common(prompt, prompts[n]), len(prompts[n])) for n in names[:place]]
        within_block = any(count < shared for shared, _ in earlier)
        lengths = [length for shared, length in earlier if shared == count]
        # A prompt that was kept whole is reused whole, whatever parts others have of it.
        cut = count % block_size(schedule) and lengths and count < min(lengths)
        if within_block or cut:
            return True
    return False


def beside_cold(schedule: Schedule, rules: PrefixReuse) -> bool:
    """Of requests that arrive together, some reuse a prefix and some do not."""
    counts = foreseen(schedule, rules)
    return any(
        len({counts[request.request_id] > 0 for request in arrival.requests}) > 1
        for arrival in schedule.arrivals
    )


def hit_with_processors(schedule: Schedule, rules: PrefixReuse) -> bool:
    """Some request with logits processors reuses a prefix."""
    counts = foreseen(schedule, rules)
    return any(counts[r.request_id] for r in schedule.requests if r.processors)


def late_hit(schedule: Schedule, rules: PrefixReuse) -> bool:
    """A request that reuses a prefix arrives while another decodes."""
    counts = foreseen(schedule, rules)
    return any(
        counts[request.request_id]
        for arrival in schedule.arrivals
        if _decoding(arrival)
        for request in arrival.requests
    )


def removed(stage: Stage) -> Reach:
    """A request that reused a prefix is removed while in ``stage``."""

    def reach(schedule: Schedule, rules: PrefixReuse) -> bool:
        counts = foreseen(schedule, rules)
        return any(
            counts[name]
            for removal in schedule.removals
            if removal.when.stage is stage
            for name in removal.request_ids
        )

    return reach


def _decoding(arrival: Arrival) -> str:
    """The request that decodes when these arrive; empty if they have another trigger."""
    return (arrival.when.request_id or "") if arrival.when.stage is Stage.DECODE else ""
