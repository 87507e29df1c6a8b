"""The workload ``traffic_media``: images, videos and sounds beside text, and near twins.

Near twins are requests that a key could take for one: one text with several media, media that
differ in the last pixel, in the order of all or in colour alone, two media in the other order or
twice the same, texts that differ between two media, tenants whose long names differ in the last
letters or in a capital.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from dataclasses import replace as replace_witness
from typing import Any

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.family import Family
from conformance.core.schedule import Media, Request, Schedule, Stage
from conformance.core.trace import Trace
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    TENANTS,
    begun_otherwise,
    gone,
    one_by_one,
    produced,
    together,
)
from conformance.scenarios.choices import Choices, Seeded
from conformance.scenarios.scenario import Brief, Scenario, Witness
from conformance.scenarios.workloads.mixing import Dress, Scale, draw_rows, traffic

_SCALE = Scale(first=9, second=5, groups=(2, 4), longest=13, limits=(3, 8), lasting=14)
# Media of one text in one batch; media of one prompt.
_TWINS, _SEVERAL = 4, 4
# The place, among the last rows, of one whose medium is another's mirror image.
_MIRRORED = 3
# Prompts of fewer than 16 tokens are not kept whole: mlx_vlm/apc.py, exact_cache_min_tokens.
_KEPT_TEXT = 16
# Tokens between two media: enough that what is kept could end among them.
_BETWEEN = 24
# For all prompts, so that each that comes again finds its own.
_ROOM = PrefixCaching(blocks=256, block_size=4, snapshots=64, interval=4)
_KEPT = frozenset({Capability.PREFIX_CACHING, Capability.LATE_JOIN})


def _traffic_media(brief: Brief) -> list[Schedule]:
    kinds = [kind for kind in brief.modalities if kind != "text"]
    schedules = [_mixed(brief, kind, number) for number, kind in enumerate(kinds)]
    # Where each prompt must hold a medium, no prefixes are kept: the same as in `prefix_caching`.
    if brief.capabilities >= _KEPT and not brief.required:
        schedules += [_kept(brief, kind) for kind in kinds]
        schedules += [made for kind in kinds for made in _pairs(brief, kind)]
    return schedules


def _mixed(brief: Brief, kind: str, number: int) -> Schedule:
    choices = Seeded(brief.seed, 8, number)
    rows = draw_rows(brief, choices, _SCALE)
    options = EngineOptions(prefill_batch_size=3, completion_batch_size=6)
    shown = _showing(brief, choices, kind)
    return traffic(brief, choices, _SCALE, rows, shown, name=f"{kind}_busy", options=options)


def _showing(brief: Brief, choices: Choices, kind: str) -> Dress:
    """Gives most requests media; every third row is text, where the family takes text alone.

    The last rows, which come together, and the first are near twins. The others have their own
    text, and one medium or several.
    """
    sizes, number = brief.sizes[kind], 0

    def dress(request: Request, lasts: bool) -> Request:  # noqa: ARG001, FBT001 - see Dress
        nonlocal number
        number += 1
        place = number - _SCALE.first
        twins = place > 0 or number == 1
        if number % 3 == 2 and not twins and not brief.required:
            return request
        content = place - 2 if place > _MIRRORED else 0
        twin, mirrored = place == 1, place == _MIRRORED
        media = [Media(kind, sizes[0], content, twin=twin, mirrored=mirrored)]
        if not twins:
            several = 1 if kind in brief.single or brief.required else choices.integer(1, 2)
            count = _SEVERAL if several > 1 and number > 3 else several
            media = [Media(kind, sizes[(number + i) % len(sizes)], i) for i in range(count)]
        variant = 0 if twins else number
        return _of(brief, request, media, _Text(variant, before=3 - variant % 3))

    return dress


@dataclass(frozen=True)
class _Text:
    """The text around media: its variant, tokens before, after and between them.

    More tokens before them are fewer after them. Between two is one token, unless some are given.
    """

    variant: int
    after: int = 4
    between: tuple[int, ...] = ()
    before: int = 3


def _of(brief: Brief, request: Request, media: list[Media], text: _Text) -> Request:
    """The request with a prompt of these media and a text."""
    words = brief.prompt(3, text.variant)
    words += brief.prompt(text.after + text.variant % 5, text.variant)
    before, after = words[: text.before], words[text.before :]
    shown: list[tuple[int, ...] | Media] = []
    for place, medium in enumerate(media):
        shown += [*([text.between or brief.prompt(1, place)] if place else []), medium]
    if brief.media_last:
        parts = [before + after, *shown]
    else:
        parts = [*([] if brief.required else [before]), *shown, after]
    prompt, placed = brief.compose(parts)
    return replace(request, prompt=prompt, media=placed)


def _kept(brief: Brief, kind: str) -> Schedule:
    """Near twins, one after the other and at once, where prefixes of prompts are kept."""
    options = EngineOptions(prefix_caching=_ROOM)
    size = brief.sizes[kind][0]
    tenants = TENANTS if Capability.TENANTS in brief.capabilities else ("",) * len(TENANTS)

    def shows(name: str, limit: int, content: int = 0, tenant: int = 0, **marks: Any) -> Request:
        request = Request(name, (), limit, tenant=tenants[tenant])
        return _of(brief, request, [Media(kind, size, content, **marks)], _Text(3, _KEPT_TEXT))

    first, lasting = shows("first", 2), shows("lasting", 12, 1, tenant=1)
    rows = [shows("twin", 4, twin=True), shows("other", 5, 2), shows("of_b", 3, tenant=1)]
    rows.append(shows("mirrored", 3, mirrored=True))
    arrivals = [together(lasting, first), together(*rows, when=gone("first"))]
    again = [shows("again", 3), shows("twin_of_b", 6, tenant=1, twin=True)]
    again.append(shows("of_capital_a", 3, tenant=2))
    arrivals.append(together(*again, when=gone("of_b")))
    arrivals.append(together(shows("late", 2, 3), when=produced("lasting", 3)))
    return Schedule(f"{kind}_kept", tuple(arrivals), options=options)


def _pairs(brief: Brief, kind: str) -> list[Schedule]:
    """Each request before its near twin: one medium at two places, or images of equal brightness.

    Others have two media.
    """
    size, asked = brief.sizes[kind][0], list[Request]()

    def add(name: str, *media: Media, **more: Any) -> None:
        request, text = Request(name, (), 2), _Text(5, after=_KEPT_TEXT, **more)
        asked.append(_of(brief, request, list(media), text))

    one, other = Media(kind, size, 4), Media(kind, size, 5)
    if not brief.media_last:
        add("placed", one)
        add("moved", one, before=4)
    if kind == "image":
        add("coloured", replace(one, tones=1))
        add("gray", replace(one, tones=5))
    if kind not in brief.single:
        add("in_order", one, other)
        add("swapped", other, one)
    if kind == "image" and kind not in brief.single:
        add("one_twice", one, one)
        add("other_twice", other, other)
        text = brief.prompt(_BETWEEN, 6)
        add("between", one, other, between=text)
        others = begun_otherwise(brief, text[-1:], text[-1:])
        add("between_others", one, other, between=text[:-1] + others)
    options = EngineOptions(prefix_caching=_ROOM)
    return [one_by_one(f"{kind}_pairs", asked, options)] if asked else []


def _twins(trace: Trace) -> bool:
    """Several rows of one text decode at once, each with a medium of its own."""
    asked = {request.request_id: request for request in trace.schedule.requests}
    for step in trace.steps:
        media = defaultdict(set)
        for name in step.in_stage(Stage.DECODE):
            media[_of_text(asked[name])].add(asked[name].media)
        if max(map(len, media.values()), default=0) >= _TWINS - 1:
            return True
    return False


def _of_text(request: Request) -> tuple[int, ...]:
    """The prompt's tokens that are of no medium."""
    shown = [medium.span for medium in request.media]
    places = enumerate(request.prompt)
    return tuple(t for at, t in places if not any(a <= at < b for a, b in shown))


def _takes_media(family: Family) -> str:
    return "" if set(family.facts.modalities) - {"text"} else "it takes text only"


_LATE = frozenset({Capability.LATE_JOIN})
TRAFFIC_MEDIA = Scenario(
    "traffic_media",
    213,
    "a busy server of images, videos and sounds, many of them near twins",
    frozenset({Capability.MEDIA}),
    _traffic_media,
    (
        seen.rows_together(3).shown_in("*_busy"),
        replace_witness(seen.late_join(), needs=_LATE).shown_in("*_busy"),
        Witness(
            "several media of one text at once", _twins, frozenset({Capability.STAGES})
        ).shown_in("*_busy"),
    ),
    applies=_takes_media,
)
