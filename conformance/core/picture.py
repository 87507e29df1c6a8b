"""The data for the page of a failing case: one run of its worst schedule.

Part of a result's line, so it is kept small: stages are run lengths, numbers are rounded.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import msgspec

from conformance.core.schedule import Stage

MOST_STEPS = 200
"""Steps of a run, and output tokens of a request, that a picture keeps; the rest is counted."""

MOST_ROWS = 40
"""Requests that a picture keeps."""

_LETTERS = {
    None: "-",
    Stage.QUEUED: "q",
    Stage.PREFILL: "p",
    Stage.DECODE: "d",
    Stage.FINISHED: "f",
    Stage.REMOVED: "x",
}
_STAGES = {letter: stage for stage, letter in _LETTERS.items()}


class Lane(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request over the steps of a run.

    Attributes:
        request_id: its name.
        stages: its stage at the start of each step, as run lengths: ``2-3q1p4d1f`` is two steps
            before it arrived, three queued, one in prefill, four in decode, then finished (``x``:
            removed).
        pieces: step, and the number of prompt tokens processed in it.
    """

    request_id: str
    stages: str
    pieces: tuple[tuple[int, int], ...] = ()


class Compared(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request's output tokens, next to those of its single stream.

    Attributes:
        request_id: the request that the worst finding names.
        expected, got: token ids of the single stream, and of the batch; up to its cancellation, if
            it was cancelled.
        mode: mode of the run that ``difference`` is from; in a forced run it continues beyond the
            first bad token.
        difference: for each token the largest absolute logprob difference (nats); ``None`` if not
            finite, or if the engine returns no logprobs.
        noise: for each token the largest change that rounding alone may cause (nats).
        margin: for each token the single stream's best logprob minus its second (nats).
        bad: the first token whose difference exceeds the noise; ``None`` if there is none.
    """

    request_id: str
    expected: tuple[int, ...]
    got: tuple[int, ...]
    mode: str = ""
    difference: tuple[float | None, ...] = ()
    noise: tuple[float | None, ...] = ()
    margin: tuple[float | None, ...] = ()
    bad: int | None = None


class Picture(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run of a case's worst schedule.

    Attributes:
        schedule: its name.
        mode: forced or free, or empty if no batch was run: then only ``compared`` is set, for a
            single stream that was decoded in two ways.
        steps: the number of steps of the run; the fields below cover the first ``MOST_STEPS``.
        rows: the number of its requests.
        lanes: the first ``MOST_ROWS`` requests, by arrival.
        calls: for each step the model's calls, as ``4x22 2x1``: rows x columns, padding included.
        cache_bytes: bytes of live caches after each step; ``None`` if unknown.
        probes: step, and the invalid call that was made before it.
        stopped: why the run ended early; empty if all requests ended.
        compared: the output tokens of one request.
    """

    schedule: str
    mode: str
    steps: int
    rows: int
    lanes: tuple[Lane, ...]
    calls: tuple[str, ...] = ()
    cache_bytes: tuple[int | None, ...] = ()
    probes: tuple[tuple[int, str], ...] = ()
    stopped: str = ""
    compared: Compared | None = None


def packed(stages: Sequence[Stage | None]) -> str:
    """Stages as run lengths; for an ended request only the first step after its end is kept."""
    text = ""
    for stage, run in itertools.groupby(stages):
        ended = stage in (Stage.FINISHED, Stage.REMOVED)
        text += f"{1 if ended else len(list(run))}{_LETTERS[stage]}"
    return text


def unpacked(text: str) -> tuple[Stage | None, ...]:
    """The stages from which ``packed`` made ``text``; other text is skipped."""
    return tuple(
        stage
        for count, letter in re.findall(rf"(\d{{1,4}})([{''.join(_STAGES)}])", text)
        for stage in [_STAGES[letter]] * int(count)
    )
