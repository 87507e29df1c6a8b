"""Schedules for servers: the ladder's ingredients over HTTP, as far as clients can arrange it.

A client sees neither the model's calls nor its batches. For requests that should decode together, a
long request of the engine itself is running when they arrive, so that they wait and begin together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.errors import Unsupported
from conformance.core.family import Family
from conformance.core.schedule import Asked, Client, Media, Request, Schedule, Stage
from conformance.core.token_choice import OF_SERVER, Sampler
from conformance.core.trace import FinishReason, Trace
from conformance.scenarios import witnesses as seen
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    SHORT,
    TWO,
    at_once,
    media_request,
    produced,
    requests_of,
    text_request,
    together,
)
from conformance.scenarios.cost import COST_SERVED
from conformance.scenarios.scenario import Brief, Scenario, Witness
from conformance.scenarios.served_clients import (
    ANSWER,
    BUSY,
    FLOOD_SLOTS,
    LASTING,
    LIBRARIES,
    RUNNING,
    all_ended,
    alone,
    flood,
    joined,
    malformed,
    prefixes,
    probed,
    reused,
    slots_again,
)
from conformance.scenarios.served_draws import SERVED_DRAWS
from conformance.scenarios.served_endpoints import SERVED_ENDPOINTS
from conformance.scenarios.served_features import FEATURES, takes_images
from conformance.scenarios.served_leaves import leaves, weighed
from conformance.scenarios.served_options import SERVED_OPTIONS
from conformance.scenarios.served_text import SERVED_TEXT
from conformance.scenarios.served_traffic import SERVED_TRAFFIC

_SERVED = frozenset({Capability.SERVED})
_IN_PIECES = frozenset({Capability.CHUNKED})
_COUNTED = frozenset({Capability.COUNTED})
# Alike in their last bits, and where they are floats: for others of these a seed would be one.
_SEEDS = (0, 2, 1 << 24, (1 << 24) + 1)
_WIDE_SEEDS = (0, 1 << 62, (1 << 62) + 1)
_TAKES_ARGUMENTS = "mlx_lm"  # the only library whose server passes any on to a chat template


def in_flight(count: int) -> Witness:
    """At least ``count`` answers had begun and none of them had ended."""
    return Witness(
        f"{count} answers at once",
        lambda trace: any(len(step.in_stage(Stage.DECODE)) >= count for step in trace.steps),
        rows=count,
        beside=count > 1,
    )


def _room(tokens: int) -> Callable[[Family], str]:
    """Why a family with fewer positions than ``tokens`` does not apply."""

    def applies(family: Family) -> str:
        if family.longest is None or family.longest >= tokens:
            return ""
        return f"it has positions for {family.longest} tokens, an answer must last for {tokens}"

    return applies


def _together(brief: Brief) -> list[Schedule]:
    lengths = (LONG, SHORT, MEDIUM, TWO)
    equal = [text_request(brief, f"r{i}", MEDIUM, variant=i, max_tokens=ANSWER) for i in range(4)]
    ragged = requests_of(brief, lengths, ANSWER)
    same = [text_request(brief, f"r{i}", MEDIUM, max_tokens=ANSWER) for i in range(4)]
    whole = [
        text_request(
            brief, f"r{n}", n, variant=1, max_tokens=ANSWER, asked=Asked(streamed=n in (LONG, TWO))
        )
        for n in lengths
    ]
    found = {"equal_length": equal, "ragged": ragged, "identical": same, "some_whole": whole}
    found |= {f"by_{client}": _by_client(brief, client) for client in _clients(brief)}
    schedules = [at_once(name, *rows, options=BUSY) for name, rows in found.items()]
    return [*schedules, *([_templated(brief)] if brief.library == _TAKES_ARGUMENTS else [])]


def _templated(brief: Brief) -> Schedule:
    """Clients with arguments for the chat template, beside others without.

    Each argument is the last token of its prompt, which the template writes, unless another one
    says that it is not to.
    """
    first, *others = requests_of(brief, (LONG, SHORT, MEDIUM, TWO, MEDIUM + 1), ANSWER)
    others[1::2] = map(_with_argument, others[1::2])
    others[2] = _with_argument(others[2], writes_ending=False)
    # mlx-lm serves it alone: server.py:771.
    others[3] = structs.replace(others[3], sampler=Sampler(OF_SERVER, {"seed": 1}))
    begin = together(_with_argument(first))
    later = together(*others, when=produced(first.request_id, 2))
    # Not beside the engine's own request, for whose end the one that is served alone would wait.
    return Schedule("templated", (begin, later))


def _with_argument(row: Request, **more: bool) -> Request:
    asked = Asked(fields={"chat_template_kwargs": {"ending": row.prompt[-1], **more}})
    return structs.replace(row, asked=asked)


def _clients(brief: Brief) -> list[Client]:
    """The clients besides OpenAI's that are installed here, and that the server has a way for."""
    lacking = {Client.ANTHROPIC} if Capability.MESSAGES not in brief.capabilities else set()
    others = [client for client in Client if client is not Client.OPENAI and client.installed]
    return [client for client in others if client not in lacking]


def _by_client(brief: Brief, client: Client) -> list[Request]:
    """Requests of one client next to one of OpenAI's."""
    return [
        text_request(brief, "streamed", MEDIUM, max_tokens=ANSWER, asked=Asked(client=client)),
        text_request(
            brief, "whole", SHORT, max_tokens=ANSWER, asked=Asked(streamed=False, client=client)
        ),
        text_request(brief, "openai", LONG, max_tokens=ANSWER),
    ]


def _joins(brief: Brief) -> list[Schedule]:
    """Requests arrive during others' answers; the engine's own answer is the longest."""
    long = text_request(brief, "long", LONG, max_tokens=4 * ANSWER)
    late = [text_request(brief, f"late{n}", n, max_tokens=ANSWER) for n in (SHORT, MEDIUM)]
    arrivals = (together(long), together(*late, when=produced("long", 3)))
    return [Schedule("into_long", arrivals, options=BUSY)]


def _ends(brief: Brief) -> list[Schedule]:
    """Short answers next to long ones: most rows of the batch leave, one after the other."""
    outputs = (1, 40, 2, 3, 40, 1, 5, 40, 2, 8)
    rows = [
        text_request(brief, f"r{i}", (SHORT, MEDIUM, TWO)[i % 3], variant=i, max_tokens=n)
        for i, n in enumerate(outputs)
    ]
    return [at_once("short_beside_long", *rows, options=BUSY)]


def _slots(brief: Brief) -> list[Schedule]:
    lengths = (MEDIUM, LONG, SHORT, TWO, MEDIUM, SHORT, TWO)
    rows = [
        text_request(brief, f"r{i}", n, variant=i, max_tokens=2 * ANSWER + i)
        for i, n in enumerate(lengths)
    ]
    options = EngineOptions(prefill_batch_size=2, completion_batch_size=2)
    return [at_once("two_slots", *rows, options=options)]


def _stops(brief: Brief) -> list[Schedule]:
    """Stop sequences from the answers: at the start, within, and one that never occurs."""
    low, high = brief.tokens
    rows = []
    for name, length, at in (("first", SHORT, 0), ("within", MEDIUM, 4), ("two", LONG, 7)):
        plain = text_request(brief, name, length, max_tokens=ANSWER)
        tokens = brief.solo(plain, EngineOptions()).tokens
        stop = tokens[at : at + (2 if name == "two" else 1)]
        rows.append(text_request(brief, name, length, max_tokens=ANSWER, stop=(stop,)))
    last = text_request(brief, "never", TWO, max_tokens=ANSWER)
    tokens = brief.solo(last, EngineOptions()).tokens
    never = next(t for t in range(high - 1, low, -1) if t not in tokens)
    rows.append(text_request(brief, "never", TWO, max_tokens=ANSWER, stop=((never,),)))
    return [at_once("stops", *rows, options=BUSY)]


def _stopped(trace: Trace) -> bool:
    reasons = {trace.stream(r.request_id).finish_reason for r in trace.schedule.requests}
    return {FinishReason.STOP, FinishReason.LENGTH} <= reasons


def _samplers(brief: Brief) -> list[Schedule]:
    """Requests with seeds next to plain ones: each gets the same answer as alone."""
    seeded = [Sampler("server", {"temperature": 0.8, "seed": seed}) for seed in _SEEDS]
    narrow = Sampler("server", {"temperature": 0.7, "top_p": 0.6, "seed": 3})
    rows = [
        text_request(brief, "plain", MEDIUM, max_tokens=ANSWER),
        text_request(brief, "seed0", LONG, max_tokens=ANSWER, sampler=seeded[0]),
        text_request(brief, "seed2", SHORT, max_tokens=ANSWER, sampler=seeded[1]),
        text_request(brief, "narrow", TWO, max_tokens=ANSWER, sampler=narrow),
        text_request(brief, "plain2", SHORT, variant=1, max_tokens=ANSWER),
        text_request(brief, "seed0 again", LONG, max_tokens=ANSWER, sampler=seeded[0]),
    ]
    if brief.library not in LIBRARIES:  # a real model may be as sure that seeds change nothing
        return [at_once("seeds_beside_plain", *rows)]
    rows += [
        text_request(brief, f"other seed {at}", LONG, max_tokens=ANSWER, sampler=sampler)
        for at, sampler in enumerate(seeded[1:])
    ]
    wide = [
        text_request(
            brief,
            f"wide seed {at}",
            SHORT,
            max_tokens=ANSWER,
            sampler=Sampler("server", {"temperature": 0.8, "seed": seed}),
        )
        for at, seed in enumerate(_WIDE_SEEDS)
    ]
    plain = text_request(brief, "plain", MEDIUM, max_tokens=ANSWER)
    return [at_once("seeds_beside_plain", *rows), at_once("wide_seeds", plain, *wide)]


def _sampled_beside_plain(trace: Trace) -> bool:
    ended = [r for r in trace.schedule.requests if trace.stream(r.request_id).finish_reason]
    return {bool(r.sampler) for r in ended} == {True, False}


def _media(brief: Brief) -> list[Schedule]:
    rows = [
        media_request(brief, "image", "image", max_tokens=ANSWER),
        text_request(brief, "text", MEDIUM, max_tokens=ANSWER),
        media_request(brief, "other", "image", content=1, max_tokens=ANSWER),
        media_request(brief, "larger", "image", size=1, content=2, max_tokens=ANSWER),
    ]
    schedules = [at_once("images_and_text", *rows, options=BUSY)]
    if "image" not in brief.single:
        schedules.append(at_once("one_picture_twice", _twice(brief)))
    return schedules


def _twice(brief: Brief) -> Request:
    """A message with one picture in two places, and another one of its size after them.

    Backwards they would be others, and so would they without those that come again.
    """
    image, other = (Media("image", brief.sizes["image"][0], content) for content in (3, 4))
    between, after = brief.prompt(TWO, 1), brief.prompt(SHORT, 2)
    prompt, media = brief.compose([image, between, image, brief.prompt(TWO, 2), other, after])
    return Request("twice", prompt, ANSWER, media=media)


def _quantized(brief: Brief) -> list[Schedule]:
    sizes = brief.heads()
    group = next((n for n in (64, 32) if sizes and all(size % n == 0 for size in sizes)), None)
    if group is None:
        listed = ", ".join(map(str, sorted(sizes))) or "no"
        raise Unsupported(f"heads of {listed} elements can't be cut into groups: not supported")
    rows = requests_of(brief, (LONG, SHORT, MEDIUM), ANSWER)
    # Eight bits rarely change a word of a tiny model; four do: it shows if they are ignored.
    return [
        at_once(f"bits{bits}", *rows, options=EngineOptions(busy=True, kv=KvQuant(bits, group)))
        for bits in (8, 4)
    ]


SERVED_SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "served_alone",
        300,
        "a server asked one request after the other, in every way",
        _SERVED,
        alone,
        (in_flight(1),),
    ),
    SERVED_ENDPOINTS,
    Scenario(
        "served_together",
        310,
        "requests that come together while the server is at work",
        _SERVED,
        _together,
        (in_flight(4).shown_in("equal_length", "ragged", "identical"),),
    ),
    Scenario(
        "served_joins",
        320,
        "requests that join while another's answer is on its way",
        _SERVED | {Capability.LATE_JOIN},
        _joins,
        (Witness("a request that joins a long answer", joined, beside=True),),
        applies=_room(RUNNING + LASTING),
    ),
    Scenario(
        "served_ends",
        330,
        "short answers beside long ones in a batch of ten",
        _SERVED,
        _ends,
        (in_flight(4),),
    ),
    Scenario(
        "served_slots",
        340,
        "more requests than the server has rows",
        _SERVED | {Capability.SLOTS},
        _slots,
        (in_flight(2),),
    ),
    SERVED_OPTIONS,
    Scenario(
        "served_stops",
        350,
        "stop strings",
        _SERVED | {Capability.STOP},
        _stops,
        (Witness("answers that stop beside one that does not", _stopped),),
    ),
    Scenario(
        "served_samplers",
        360,
        "sampled requests with seeds beside plain ones",
        _SERVED | {Capability.SAMPLERS},
        _samplers,
        (Witness("sampled requests beside plain ones", _sampled_beside_plain),),
    ),
    SERVED_TRAFFIC,
    SERVED_DRAWS,
    SERVED_TEXT,
    Scenario(
        "served_media",
        370,
        "images beside text",
        _SERVED | {Capability.MEDIA},
        _media,
        (in_flight(2).shown_in("images_and_text"),),
        applies=takes_images,
    ),
    Scenario(
        "served_quantized",
        380,
        "quantized keys and values by the server's own options",
        _SERVED | {Capability.QUANTIZED},
        _quantized,
        (in_flight(2),),
    ),
    Scenario(
        "served_prefixes",
        390,
        "prompts that begin alike, with the server's prefix cache",
        _SERVED | {Capability.PREFIX_CACHING},
        prefixes,
        (Witness("a prompt whose begin was kept", reused),),
    ),
    *FEATURES,
    Scenario(
        "served_leaves",
        400,
        "clients that go away, and who comes after them",
        _SERVED | {Capability.CANCEL},
        leaves,
        (
            seen.removed_from(Stage.DECODE).shown_in("last_slot", "stream", "last_token"),
            replace(
                seen.removed_from(Stage.PREFILL).shown_in("prefill"), needs=_IN_PIECES, cut=True
            ),
            seen.removed_from(Stage.QUEUED).shown_in("waiting"),
            Witness("what each cycle left", weighed, needs=_COUNTED).shown_in("again"),
            seen.follow_up(),
        ),
        applies=_room(2 * LASTING + SHORT),
    ),
    Scenario(
        "served_flood",
        410,
        "ten times as many requests as rows, some of whose clients go away",
        _SERVED | {Capability.CANCEL, Capability.SLOTS},
        flood,
        (
            in_flight(FLOOD_SLOTS // 4),
            Witness("an answer to each who stayed", all_ended),
            Witness("half of the slots at work again", slots_again, beside=True),
            seen.removed_from(Stage.QUEUED),
        ),
    ),
    Scenario(
        "served_malformed",
        420,
        "malformed requests: refused with a reason, and nobody is harmed",
        _SERVED | {Capability.PROBES},
        malformed,
        (Witness("a malformed request", probed),),
    ),
    COST_SERVED,
)
"""The scenarios of servers, from the simplest."""
