"""Rows with their own processors next to rows without, which leave and join.

All prompts have one length: padding has its own scenarios.
"""

from __future__ import annotations

from conformance.core.schedule import Schedule
from conformance.core.token_choice import Processor
from conformance.scenarios.build import LASTING, MEDIUM, gone, produced, text_request, together
from conformance.scenarios.scenario import Brief


def schedules(brief: Brief) -> list[Schedule]:
    """All schedules, for engines with per-request processors and late joins."""
    makers = (_processors_leave, _plain_joins, _plain_leaves, _penalties)
    return [make(brief) for make in makers]


def bias(brief: Brief, number: int) -> Processor:
    """A processor that ignores the history: it favours some tokens, others for other numbers."""
    low, high = brief.tokens
    count = high - low
    liked = {low + (count * part // 16 + number) % count for part in range(16)}
    return Processor("library", {"logit_bias": {str(token): 4.0 for token in sorted(liked)}})


def _processors_leave(brief: Brief) -> Schedule:
    """Rows with processors leave from between others; one without joins, then one with.

    A list of rows that is empty by then is too short for both joining rows:
    https://github.com/Blaizzy/mlx-vlm/pull/1583.
    """
    outputs = {"a": 2, "plain": LASTING, "b": 4, "other": LASTING}
    given = {"a": (bias(brief, 1),), "b": (bias(brief, 2),)}
    rows = [
        text_request(brief, name, MEDIUM, variant=n, max_tokens=out, processors=given.get(name, ()))
        for n, (name, out) in enumerate(outputs.items())
    ]
    bare = text_request(brief, "bare", MEDIUM, variant=5, max_tokens=LASTING)
    own = (bias(brief, 3),)
    late = text_request(brief, "late", MEDIUM, variant=4, max_tokens=3, processors=own)
    joins = (together(bare, when=gone("b")), together(late, when=produced("bare", 2)))
    return Schedule("processors_leave", (together(*rows), *joins))


def _plain_joins(brief: Brief) -> Schedule:
    """A row with processors leaves; one without joins the other without, which then leaves, too.

    A list that had entries for the first rows has none for the joining row:
    https://github.com/Blaizzy/mlx-vlm/pull/1451.
    """
    rows = [
        text_request(brief, "own", MEDIUM, variant=1, max_tokens=2, processors=(bias(brief, 1),)),
        text_request(brief, "other", MEDIUM, variant=2, max_tokens=5),
    ]
    late = text_request(brief, "bare", MEDIUM, variant=3, max_tokens=LASTING)
    return Schedule("plain_joins", (together(*rows), together(late, when=gone("own"))))


def _plain_leaves(brief: Brief) -> Schedule:
    """A row without processors leaves others without; then rows with processors join.

    Lists that are cut only if some row has a processor are longer than the batch by then:
    https://github.com/ml-explore/mlx-lm/pull/1772.
    """
    rows = [
        text_request(brief, name, MEDIUM, variant=n, max_tokens=out)
        for n, (name, out) in enumerate({"a": 2, "plain": LASTING}.items())
    ]
    late = [
        text_request(
            brief, f"late_{n}", MEDIUM, variant=n, max_tokens=3, processors=(bias(brief, n),)
        )
        for n in (2, 3)
    ]
    return Schedule("plain_leaves", (together(*rows), together(*late, when=gone("a"))))


def _penalties(brief: Brief) -> Schedule:
    """Penalties count the tokens of their own row, including its prompt; other rows have none."""
    repeated = Processor("library", {"repetition_penalty": 1.4, "repetition_context_size": 12})
    counted = Processor("library", {"frequency_penalty": 0.7, "presence_penalty": 0.3})
    # Correct even if a single stream shows processors only the last token of a prompt.
    last = Processor("library", {"repetition_penalty": 3.0, "repetition_context_size": 1})
    own = {"repeated": (repeated,), "plain": (), "counted": (counted,), "last": (last,)}
    rows = [
        text_request(brief, name, MEDIUM, variant=variant, max_tokens=2 + variant, processors=given)
        for variant, (name, given) in enumerate(own.items())
    ]
    return Schedule("penalties", (together(*rows),))
