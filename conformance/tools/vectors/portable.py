"""The part of a schedule that means the same for every engine, and why the rest does not."""

from __future__ import annotations

from collections.abc import Set

import msgspec

from conformance.core.schedule import Arrival, Request, Schedule, triggers
from conformance.core.token_choice import Processor, Sampler
from conformance.tools.vectors.contents import LeftOut

# Arguments of mlx-lm's processors that any engine can support: see docs/vectors.md.
_PLAIN_PROCESSORS = {
    "logit_bias",
    "repetition_penalty",
    "repetition_context_size",
    "presence_penalty",
    "presence_context_size",
    "frequency_penalty",
    "frequency_context_size",
}
_PLAIN_SAMPLERS = {"temp", "top_p", "min_p", "top_k"}


def portable(schedule: Schedule, scenario: str) -> tuple[Schedule | None, tuple[LeftOut, ...]]:
    """The part of a schedule that can be exported, and the parts left out.

    Requests that sample with a library's random numbers are left out. A schedule is left out as a
    whole if another request waits for one of them, or if it has options of one library.
    """

    def left(reason: str, request: str = "") -> LeftOut:
        return LeftOut(scenario, reason, schedule=schedule.name, request=request)

    if reason := _of_schedule(schedule):
        return None, (left(reason),)
    out = {r.request_id: why for r in schedule.requests if (why := _of_request(r))}
    found = tuple(left(why, name) for name, why in out.items())
    if not out:
        return schedule, ()
    rest = _without(schedule, out.keys())
    if not rest.arrivals:
        return None, found
    if needed := sorted(_needed(rest) & out.keys()):
        return None, (*found, left(f"others wait for {', '.join(needed)}, left out"))
    return rest, found


def _of_schedule(schedule: Schedule) -> str:
    """Why the whole schedule is specific to one library; empty if it is portable."""
    options, requests = schedule.options, schedule.requests
    reasons = {
        "quantized caches round as one library's kernels do": options.kv is not None,
        "the drafter is the engine's own": options.drafting is not None,
        "max_kv_size bounds caches in the library's own way": options.max_kv_size is not None,
        "the sampler and processors are the engine's own": options.sampler is not None
        or bool(options.processors),
        "invalid calls are of one engine's own interface": bool(schedule.probes),
        "it looks at the engine's memory": schedule.weigh is not None,
        "it counts what the work of this project's engines costs": bool(schedule.contracts),
        "media are made into inputs by the library's processor": any(r.media for r in requests),
        "a logits processor is this project's own": any(
            not _plain(processor) for request in requests for processor in request.processors
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _of_request(request: Request) -> str:
    if request.budget is not None:
        return "a thinking budget forces tokens by the library's own rule"
    if request.sampler is not None and not _greedy(request.sampler):
        return f"its sampler ({request.sampler.kind}) draws with the library's random numbers"
    return ""


def _greedy(sampler: Sampler) -> bool:
    """Whether the sampler always takes the most likely token."""
    args = sampler.args
    if sampler.kind != "library" or set(args) - _PLAIN_SAMPLERS:
        return False
    return not args.get("temp") or args.get("top_k") == 1


def _plain(processor: Processor) -> bool:
    return processor.kind == "library" and not set(processor.args) - _PLAIN_PROCESSORS


def _without(schedule: Schedule, names: Set[str]) -> Schedule:
    rest = [
        Arrival(kept, arrival.when)
        for arrival in schedule.arrivals
        if (kept := tuple(r for r in arrival.requests if r.request_id not in names))
    ]
    return msgspec.structs.replace(schedule, arrivals=tuple(rest))


def _needed(schedule: Schedule) -> set[str]:
    """The requests that a schedule mentions in addition to those that arrive."""
    waited = {when.request_id for when in triggers(schedule) if when.request_id is not None}
    sources = {r.continues.request_id for r in schedule.requests if r.continues is not None}
    return waited | sources | schedule.removed_ids
