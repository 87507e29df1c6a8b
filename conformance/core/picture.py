"""What the page of a failing case draws: one run of its worst schedule, in little room.

Part of a result's line, so every byte of it counts: stages are run lengths, numbers are rounded.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

import msgspec

from conformance.core.schedule import Stage

MOST_STEPS = 200
"""Steps of a run, and output tokens of a request, that a picture keeps; it counts the others."""

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
        stages: where it was when each step began, as run lengths: ``2-3q1p4d1f`` is two steps not
            there, three queued, one in prefill, four in decode, then finished (``x``: removed).
        pieces: step, and how many prompt tokens were worked on in it.
    """

    request_id: str
    stages: str
    pieces: tuple[tuple[int, int], ...] = ()


class Compared(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request's output tokens, beside those of its single stream.

    Attributes:
        request_id: the one that the worst finding names.
        expected, got: token ids of the single stream, and of the batch; as far as it was not
            cancelled.
        mode: of the run that ``difference`` is of: forced, it is known beyond the first bad token.
        difference: for each token the largest absolute logprob difference (nats); ``None`` where
            it is not finite, or where the engine shows no numbers.
        noise: for each token what rounding alone may move (nats).
        margin: for each token the single stream's best logprob minus its second (nats).
        bad: the first token whose difference is more than noise; ``None`` if none is.
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
        schedule: its name; ``mode`` forced or free, or empty where no batch was run: then only
            ``compared`` is told, of a single stream that was made in two ways.
        steps: how many the run had; what follows tells the first ``MOST_STEPS``.
        rows: how many requests it had; ``lanes`` are the first ``MOST_ROWS``, by arrival.
        calls: for each step the model's calls, as ``4x22 2x1``: rows x columns, padding included.
        cache_bytes: of live caches after each step; ``None`` where the engine cannot tell.
        probes: step, and the invalid call that was made before it.
        stopped: how the run ended, where that is not by its last request.
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
    """Stages as run lengths; of the end of a request only its first step is kept."""
    text = ""
    for stage, run in itertools.groupby(stages):
        ended = stage in (Stage.FINISHED, Stage.REMOVED)
        text += f"{1 if ended else len(list(run))}{_LETTERS[stage]}"
    return text


def unpacked(text: str) -> tuple[Stage | None, ...]:
    """The stages that ``packed`` made ``text`` of; what is no run length is left out."""
    return tuple(
        stage
        for count, letter in re.findall(rf"(\d{{1,4}})([{''.join(_STAGES)}])", text)
        for stage in [_STAGES[letter]] * int(count)
    )
