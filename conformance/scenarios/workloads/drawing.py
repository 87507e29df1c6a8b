"""Random workloads: traffic of any size, each with some ingredients and without the others.

An ingredient may hide a defect that shows without it: the workloads of the ladder have all of them
at once (swarm testing, Groce et al., ISSTA 2012).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace as changed

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.schedule import Request, Schedule
from conformance.scenarios.choices import Choices
from conformance.scenarios.drawn import draw_choosing, draw_medium, draw_options, in_segments
from conformance.scenarios.features import Feature
from conformance.scenarios.scenario import Brief
from conformance.scenarios.workloads.mixing import Dress, Scale, draw_rows, stopping, traffic

# Sizes are drawn from the smallest to the largest: requests, tokens, rows.
_FIRST, _SECOND, _LONGEST, _LASTING = (5, 18), (3, 8), (6, 64), (12, 30)
_SLOTS, _PIECES = (2, 24), (3, 24)
_LEAST, _MOST = (2, 4), (3, 9)  # limits of requests
# Without these features a workload does not do what these capabilities allow.
_BY_FEATURE = {
    Feature.ARRIVALS: Capability.LATE_JOIN,
    Feature.REMOVALS: Capability.CANCEL,
    Feature.STOP: Capability.STOP,
    Feature.SEGMENTS: Capability.SEGMENTS,
}


def draw_workload(
    choices: Choices, brief: Brief, features: Collection[Feature], *, name: str
) -> Schedule:
    """A workload with some of ``features`` and no others."""
    without = {of for feature, of in _BY_FEATURE.items() if feature not in features}
    brief = changed(brief, capabilities=brief.capabilities - without)
    scale, options = _scale(choices, brief, features), _options(choices, brief, features)
    dresses = [_dress(choices, brief, features)]
    if Capability.STOP in brief.capabilities:
        dresses.append(_if_it_decodes(stopping(brief, choices, options)))
    rows = draw_rows(brief, choices, scale)
    made = traffic(brief, choices, scale, rows, *dresses, name=name, options=options)
    thread = Feature.THREAD in features and choices.flag()
    return replace(made, decode_on_other_thread=thread)


def _scale(choices: Choices, brief: Brief, features: Collection[Feature]) -> Scale:
    past = 2 * brief.window + 3 if Feature.LONG in features and brief.window else 0
    group = choices.integer(1, 4)
    made = Scale(
        first=choices.integer(*_FIRST),
        second=choices.integer(*_SECOND),
        groups=(group, group + choices.integer(0, 8)),
        longest=max(past, choices.integer(*_LONGEST)),
        limits=(choices.integer(*_LEAST), choices.integer(*_LEAST) + choices.integer(*_MOST)),
        lasting=choices.integer(*_LASTING),
        one_padded=choices.flag(),
    )
    # Not drawn by itself: then the seeds of examples would mean other workloads.
    return changed(made, emptied=bool(made.lasting % 2))


def _options(choices: Choices, brief: Brief, features: Collection[Feature]) -> EngineOptions:
    """The engine's options, with more slots and longer pieces than small schedules need."""
    options = draw_options(choices, brief, features)
    if Feature.PIECES in features:
        options = replace(options, prefill_step_size=choices.integer(*_PIECES))
    if Feature.SLOTS in features or options.drafting is not None:
        slots = choices.integer(*_SLOTS)
        few = slots if options.drafting is not None else choices.integer(1, slots)
        options = replace(options, completion_batch_size=slots, prefill_batch_size=few)
    return options


def _dress(choices: Choices, brief: Brief, features: Collection[Feature]) -> Dress:
    before: list[Request] = []

    def dress(request: Request, lasts: bool) -> Request:  # noqa: ARG001, FBT001 - see Dress
        if Feature.MEDIA in features and choices.flag():
            request = draw_medium(choices, brief, request.request_id, max_tokens=request.max_tokens)
        elif Feature.CACHING in features and before and choices.flag():
            kept = choices.pick(before).prompt
            own = brief.prompt(choices.integer(1, 5), variant=len(before))
            request = replace(request, prompt=kept[: choices.integer(1, len(kept))] + own)
        if not request.media:
            before.append(request)
        request = replace(request, **draw_choosing(choices, features))
        return in_segments(choices, features, request)

    return dress


def _if_it_decodes(stops: Dress) -> Dress:
    def dress(request: Request, lasts: bool) -> Request:  # noqa: FBT001 - see Dress
        try:
            return stops(request, lasts)
        except Exception:  # noqa: BLE001 - a single-stream failure is reported when the schedule is played
            return request

    return dress
