"""Features of servers besides tokens: system messages, schemas, other models, reasoning, tools."""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec.structs import replace

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.errors import Unsupported
from conformance.core.family import Family
from conformance.core.schedule import Arrival, Asked, Media, Request, Schedule
from conformance.core.trace import Trace
from conformance.scenarios.build import (
    LONG,
    MEDIUM,
    SHORT,
    TWO,
    at_once,
    gone,
    media_request,
    one_by_one,
    produced,
    seeded,
    text_request,
    together,
)
from conformance.scenarios.scenario import Brief, Scenario, Witness
from conformance.scenarios.served_clients import ANSWER, LASTING, reused
from conformance.scenarios.served_tools import SERVED_TOOLS
from conformance.scenarios.served_traffic import plain_words

# Tokens of a system message: several blocks of stored prefixes fit into it.
SYSTEM = LONG
_SHORT_ANSWER = ANSWER // 2
# Sequences or blocks of a small store: fewer than three system messages have.
_FEW = PrefixCaching(blocks=2 * SYSTEM // 4, block_size=4, snapshots=2)


def systems(brief: Brief) -> list[Schedule]:
    """One system message for many requests, another one, and more of them than are stored."""
    caching = _keeping(brief)
    first, *others = [_with_system(brief, f"r{i}", 0, user=i) for i in range(5)]
    changed = [_with_system(brief, f"r{i}", system) for i, system in enumerate((1, 2, 1, 2))]
    schedules = [
        Schedule(
            "for_many",
            (together(first), together(*others, when=gone(first.request_id))),
            options=caching,
        ),
        one_by_one("changed", changed, caching),
        one_by_one("last_token", _last_token(brief), caching),
    ]
    if caching.prefix_caching is not None:
        order = (0, 3, 4, 5, 6, 0)
        rows = [_with_system(brief, f"r{i}", system) for i, system in enumerate(order)]
        schedules.append(one_by_one("few_kept", rows, EngineOptions(prefix_caching=_FEW)))
    return schedules


_TRIED = 32


def _last_token(brief: Brief) -> list[Request]:
    """Two system messages in turn that differ in their last token, so that answers differ."""
    begin, user = brief.prompt(SYSTEM, 10), brief.prompt(SHORT, 3)

    def row(name: str, last: int) -> Request:
        prompt = (*begin[:-1], last, *user)
        return Request(name, prompt, _SHORT_ANSWER, asked=Asked(system=SYSTEM))

    def answer(last: int) -> tuple[int, ...]:
        return brief.solo(row("tried", last), EngineOptions()).tokens

    low, high = brief.tokens
    own = begin[-1]
    others = [(own - low + more) % (high - low) + low for more in range(1, _TRIED)]
    other = next((last for last in others if answer(last) != answer(own)), others[0])
    return [row(f"r{at}", last) for at, last in enumerate((own, other, own, other))]


def _with_system(brief: Brief, name: str, system: int, user: int = 0) -> Request:
    """A request with the system message of this number."""
    begin = brief.prompt(SYSTEM, 10 + system)
    prompt = begin + brief.prompt(SHORT, 3 + user)
    blocks = 3 if user % 2 and brief.library == "mlx_lm" else 0
    return Request(name, prompt, _SHORT_ANSWER, asked=Asked(system=SYSTEM, blocks=blocks))


def kept_no_longer(trace: Trace) -> bool:
    """Whether the start of a prompt that had been stored was computed again."""
    reused: dict[str, int] = {}
    for step in trace.steps:
        reused |= step.output.reused
    first, *_, last = trace.schedule.requests
    return first.prompt == last.prompt and reused.get(last.request_id, 0) < SYSTEM // 2


# See ``Media.tones``: what a key that reads a picture in part, or coarsely, takes for one.
_TONES = (1, 2, 1, 3, 1, 4)


def images(brief: Brief) -> list[Schedule]:
    """Prompts that differ only in their images, or only in their text, with the prefix cache."""
    options = EngineOptions(prefix_caching=PrefixCaching())

    def row(
        name: str, content: int, variant: int, size: tuple[int, ...] = (), **marks: Any
    ) -> Request:
        image = Media("image", size or brief.sizes["image"][0], content, **marks)
        prompt, media = brief.compose([brief.prompt(SHORT, 7), image, brief.prompt(LONG, variant)])
        return Request(name, prompt, _SHORT_ANSWER, media=media)

    # What is kept of a prompt may be let go for the next one: near ones follow each other.
    rows = [
        row("one", 0, 0),
        row("again", 0, 0),
        row("last_pixel", 0, 0, twin=True),
        row("other", 1, 0),
        row("other_text", 0, 1),
    ]
    toned = Counter[int]()
    for tones in _TONES:
        toned[tones] += 1
        rows.append(row(f"tones{tones} {toned[tones]}", 0, 0, tones=tones))
    # Of one colour and one area, so that their patches are the same.
    oblong = next((size for size in brief.sizes["image"] if size[0] != size[1]), None)
    if oblong is not None:
        shapes = {"wide": oblong, "high": oblong[::-1], "wide again": oblong}
        rows += [row(name, 0, 0, size, tones=6) for name, size in shapes.items()]
    return [
        one_by_one("one_by_one", rows, options),
        Schedule(
            "together",
            (together(rows[0]), together(*rows[1:], when=gone("one"))),
            options=options,
        ),
    ]


def images_matter(trace: Trace) -> bool:
    """Whether the same text with another image had a different answer."""
    one, other = trace.stream("one").tokens, trace.stream("other").tokens
    return bool(other) and one != other


# Tokens with these texts can make an object of the schema, and other JSON.
_JSON = ("{", "}", '"a"', ":", "1", "2")


def schemas(brief: Brief) -> list[Schedule]:
    """Plain requests during and after one whose answer must be JSON of a schema."""
    _, high = brief.tokens
    words = tuple((text, high - 1 - index) for index, text in enumerate(_JSON))

    def plain(name: str, variant: int) -> Request:
        return text_request(brief, name, MEDIUM, variant=variant, max_tokens=ANSWER)

    def bound(name: str, length: int) -> Request:
        asked = Asked(schema=True)
        return text_request(brief, name, length, max_tokens=ANSWER, asked=asked)

    rows = [plain("before", 0), bound("schema", SHORT), plain("after", 1)]
    beside = [*rows[:2], plain("beside", 2), bound("other_schema", TWO)]
    return [
        one_by_one("in_turn", rows, EngineOptions(words=words)),
        Schedule(
            "in_one_batch",
            (together(*beside), Arrival((plain("next", 3),), gone("schema"))),
            options=EngineOptions(busy=True, words=words),
        ),
    ]


def models(brief: Brief) -> list[Schedule]:
    """The same prompt to the server's model, to another one, and to the first again."""

    def row(name: str, other: int, count: int = _SHORT_ANSWER, **fields: str) -> Request:
        asked = Asked(other=other, fields=fields) if other or fields else None
        return text_request(brief, name, MEDIUM, max_tokens=count, asked=asked)

    rows = [row("own", 0), row("other", 1), row("own_again", 0), row("other_again", 1)]
    if brief.library == "mlx_lm":  # whose requests may leave the model out, and are served alone
        rows.append(seeded(row("other_seeded", 1)))
        rows.append(row("unnamed", 0, model="default_model"))
        rows += _one_stop_word(brief, *rows[:2])  # others' chats have no stop strings
    own, other = row("own", 0, _long(brief)), row("other", 1)
    schedules = [
        one_by_one("in_turn", rows, _keeping(brief)),
        Schedule("while_one_answers", (together(own), together(other, when=produced("own", 3)))),
    ]
    if "image" in brief.sizes:
        schedules.append(one_by_one("pictures", _pictures(brief), EngineOptions()))
    if kinds := _OTHERS.get(brief.library):
        asked = Asked(family=next(name for name in kinds if name != brief.family))
        other = text_request(brief, "other", MEDIUM, max_tokens=_SHORT_ANSWER, asked=asked)
        arrivals = together(own), together(other, when=produced("own", 3))
        again = together(row("own_again", 0), when=gone("other"))
        schedules.append(Schedule("other_architecture", (*arrivals, again)))
        weighed = [row("own", 0), other, row("own_again", 0), _like(other)]
        options = EngineOptions(counted=Capability.COUNTED in brief.capabilities)
        schedules.append(one_by_one("weighed", weighed, options))
    return schedules


def _one_stop_word(brief: Brief, *rows: Request) -> list[Request]:
    """The server's model and another one are asked to stop at the same word, of two that they say.

    In the other's tokenizer that is another token, as the words of neighbours are exchanged.
    """
    word = (brief.tokens[0] + 1) | 1
    return [
        replace(
            row,
            request_id=f"{row.request_id}_stopped",
            processors=(plain_words((word, word ^ 1)),),
            stop=((token,),),
        )
        for row, token in zip(rows, (word, word ^ 1), strict=True)
    ]


def _pictures(brief: Brief) -> list[Request]:
    """The same picture, seen by both models in turn."""
    return [
        media_request(
            brief,
            name,
            "image",
            max_tokens=_SHORT_ANSWER,
            asked=Asked(other=1) if name.startswith("other") else None,
        )
        for name in ("own", "other", "own_again", "other_again")
    ]


def _like(request: Request) -> Request:
    return replace(request, request_id=f"{request.request_id}_again")


# Families of unlike layers, by library, whose models are loaded beside each other's.
_OTHERS = {"mlx_lm": ("mamba2", "llama"), "mlx_vlm": ("gemma3", "qwen2_vl")}


def adapters(brief: Brief) -> list[Schedule]:
    """The same prompt to the plain model and with adapters, also while it answers without."""

    def row(name: str, adapter: int, count: int = _SHORT_ANSWER, **fields: str) -> Request:
        asked = Asked(adapter=adapter, fields=fields) if adapter or fields else None
        return text_request(brief, name, MEDIUM, max_tokens=count, asked=asked)

    numbers = {"own": 0, "adapted": 1, "own_again": 0, "adapted_again": 1, "another": 2, "last": 0}
    rows = [row(name, number) for name, number in numbers.items()]
    own, adapted = row("own", 0, _long(brief)), row("adapted", 1)
    default = [row(name, n, model="default_model") for name, n in (("own", 0), ("adapted", 1))]
    mixed = [row(name, number) for name, number in numbers.items()]
    return [
        one_by_one("in_turn", rows, _keeping(brief)),
        Schedule("while_one_answers", (together(own), together(adapted, when=produced("own", 3)))),
        *([one_by_one("default_model", default)] if brief.library == "mlx_lm" else []),
        # A server may give each row its adapter, or let them wait for each other.
        at_once("at_once", *mixed),
        *(
            [one_by_one("then_another_model", _then_another(brief))]
            if Capability.MODELS in brief.capabilities
            else []
        ),
    ]


def _keeping(brief: Brief) -> EngineOptions:
    """A prefix cache, if the server has one: what one model computed is no other model's."""
    kept = Capability.PREFIX_CACHING in brief.capabilities
    return EngineOptions(prefix_caching=PrefixCaching() if kept else None)


def _then_another(brief: Brief) -> list[Request]:
    """Another model, without an adapter, is asked for after the own one with an adapter."""
    asked = {"own": None, "adapted": Asked(adapter=1), "other": Asked(other=1)}
    return [
        text_request(brief, name, MEDIUM, max_tokens=_SHORT_ANSWER, asked=how)
        for name, how in asked.items()
    ]


def with_adapter(trace: Trace) -> bool:
    """Whether the same prompt had other tokens with an adapter."""
    own, adapted = trace.stream("own").tokens, trace.stream("adapted").tokens
    return bool(adapted) and own[: len(adapted)] != adapted


def _long(brief: Brief) -> int:
    return min(LASTING // 4, (brief.longest or LASTING) - MEDIUM - 2)


def two_models(trace: Trace) -> bool:
    """Whether the same prompt had other tokens from the other model."""
    own, other = trace.stream("own").tokens, trace.stream("other").tokens
    return bool(other) and own[: len(other)] != other


# The texts of an answer's tokens, by place: reasoning, text, and a call of a tool, in this order.
# Markers are made of two tokens each, so that they come in two pieces of a stream.
_TEXTS = {
    0: "<thi",
    1: "nk>",
    4: "</th",
    5: "ink>",
    8: "<tool_",
    9: "call>",
    10: '{"name":"look",',
    11: '"arguments":{}}',
    12: "</tool",
    13: "_call>",
}
_MARKED = max(_TEXTS) + 1
_VARIANTS = 200


def markers(brief: Brief) -> list[Schedule]:
    """An answer with reasoning and a tool call, streamed and as a whole, next to a plain one.

    Raises:
        Unsupported: each answer that was tried has a repeated token.
    """
    variant, tokens = _without_repeats(brief)
    words = tuple((text, tokens[at]) for at, text in _TEXTS.items())

    def row(name: str, *, streamed: bool) -> Request:
        asked = Asked(streamed=streamed, tools=True)
        return text_request(brief, name, SHORT, variant=variant, max_tokens=_MARKED, asked=asked)

    both = [row("streamed", streamed=True), row("whole", streamed=False)]
    again = row("again", streamed=True)
    beside = [text_request(brief, "plain", MEDIUM, max_tokens=ANSWER)]
    return [
        one_by_one("in_turn", both, EngineOptions(words=words)),
        one_by_one("in_streams", [both[0], again], EngineOptions(words=words)),
        at_once("in_one_batch", *both, *beside, options=EngineOptions(busy=True, words=words)),
    ]


def _without_repeats(brief: Brief) -> tuple[int, tuple[int, ...]]:
    """A variant of a prompt whose answer has each marked token once, and the answer."""
    for variant in range(_VARIANTS):
        request = text_request(brief, "tried", SHORT, variant=variant, max_tokens=_MARKED)
        tokens = brief.solo(request, EngineOptions()).tokens
        every = (*request.prompt, *tokens)
        if len(tokens) == _MARKED and all(every.count(tokens[at]) == 1 for at in _TEXTS):
            return variant, tokens
    raise Unsupported(f"{_VARIANTS} answers repeat tokens that were to be markers: not supported")


def marked(trace: Trace) -> bool:
    """Whether an answer had all markers."""
    tokens = {token for _, token in trace.schedule.options.words}
    return any(tokens <= set(trace.stream(r.request_id).tokens) for r in trace.schedule.requests)


_SERVED = frozenset({Capability.SERVED})
_KEEPS = frozenset({Capability.PREFIX_CACHING})


def takes_images(family: Family) -> str:
    """Why a server of this family is sent no images; empty if it is."""
    facts = family.facts
    if "image" not in facts.modalities:
        return "it takes no images"
    markers = facts.processor.markers if facts.processor is not None else {}
    own = facts.stand_in is None or "image" in markers
    return "" if own else "a stand-in makes its inputs here, which a server does not have"


def _systems_matter(trace: Trace) -> bool:
    """Whether a user's message had different answers because of the system message."""
    first, other, *_ = trace.schedule.requests
    if first.prompt[SYSTEM:] != other.prompt[SYSTEM:]:
        return False
    one, two = trace.stream(first.request_id).tokens, trace.stream(other.request_id).tokens
    return bool(two) and one != two


def _schema_and_plain(trace: Trace) -> bool:
    """Whether there is an answer to a schema, and one without."""
    ended = [r for r in trace.schedule.requests if trace.stream(r.request_id).finish_reason]
    return {r.asked is not None and r.asked.schema for r in ended} == {True, False}


FEATURES: tuple[Scenario, ...] = (
    Scenario(
        "served_systems",
        392,
        "one system message for many, another one, and more than are kept",
        _SERVED,
        systems,
        (
            Witness("answers that differ with it", _systems_matter).shown_in(
                "changed", "last_token"
            ),
            # Of requests that wait for each other, mlx-lm keeps whole prompts alone.
            Witness("a system message that was kept", reused, needs=_KEEPS, beside=True),
            Witness(
                "one that was kept no longer", kept_no_longer, needs=_KEEPS, beside=True
            ).shown_in("few_kept"),
        ),
    ),
    Scenario(
        "served_image_prefixes",
        394,
        "prompts that differ in their images alone, with the server's prefix cache",
        _SERVED | {Capability.MEDIA, Capability.PREFIX_CACHING},
        images,
        (Witness("other tokens because of another image", images_matter),),
        applies=takes_images,
    ),
    SERVED_TOOLS,
    Scenario(
        "served_schemas",
        396,
        "answers that must be JSON of a schema, beside plain ones",
        _SERVED | {Capability.SCHEMAS},
        schemas,
        (Witness("JSON and plain answers", _schema_and_plain),),
    ),
    Scenario(
        "served_models",
        397,
        "another model, loaded on request, and the first one again",
        _SERVED | {Capability.MODELS},
        models,
        (Witness("other tokens of the other model", two_models),),
    ),
    Scenario(
        "served_markers",
        398,
        "reasoning and a call of a tool, whose markers are cut by a stream's pieces",
        _SERVED | {Capability.MARKERS},
        markers,
        (Witness("an answer with all markers", marked),),
    ),
    Scenario(
        "served_adapters",
        399,
        "an adapter on request, another one, and the model without them",
        _SERVED | {Capability.ADAPTERS},
        adapters,
        (Witness("other tokens with an adapter", with_adapter).shown_in("in_turn"),),
    ),
)
"""From the simplest."""
