"""The lines of a trace that an external engine writes, published as ``schema/trace.schema.json``.

A trace is JSON lines. Each run of a schedule begins with a ``header`` and ends with an ``end`` or
an ``error``; in between are the events in order.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec

from conformance.core.trace import FinishReason
from conformance.report.jsonl import DIALECT, cleaned
from conformance.tools.golden.format import Golden
from conformance.tools.vectors.contents import Manifest, ScenarioFile

FORMAT = 1
"""Version of the trace format; a header with another number is refused."""

Count = Annotated[int, msgspec.Meta(ge=0)]
Shown = tuple[Count, float | None]


class _Record(msgspec.Struct, frozen=True, tag_field="record", forbid_unknown_fields=True):
    """Base of all records; the field ``record`` says which one a line is."""


class Header(_Record, frozen=True, tag="header"):
    """A run begins: which engine plays which schedule of the vectors.

    ``device`` and ``versions`` are copied to results; ``dtype`` must be that of the vectors.
    """

    format: int
    engine: Annotated[str, msgspec.Meta(pattern=r"^[\w.+-]+$")]
    device: str
    dtype: str
    family: str
    scenario: str
    schedule: str
    versions: dict[str, str] = {}


class Arrived(_Record, frozen=True, tag="arrived"):
    """Requests were handed to the engine. Those that wait for nothing need no such record."""

    request_ids: tuple[str, ...]


class Removed(_Record, frozen=True, tag="removed"):
    """Requests were cancelled."""

    request_ids: tuple[str, ...]


class Token(_Record, frozen=True, tag="token"):
    """The engine gave out a token.

    ``step`` counts the output tokens of its request from 0. ``top`` are the most likely tokens
    with their logprobs (nats), as many as the engine likes to show, from which the token was
    chosen; a logprob that is not finite is null. ``forced`` means that the engine was then fed the
    golden's token and chose none itself. ``row`` is the request's row on the batch axis.
    """

    request_id: str
    step: Count
    token: Count
    top: tuple[Shown, ...] | None = None
    forced: bool = False
    row: int | None = None


class Finish(_Record, frozen=True, tag="finish"):
    """A request ended by ``max_tokens`` (length) or by a stop sequence (stop)."""

    request_id: str
    reason: FinishReason


class Error(_Record, frozen=True, tag="error"):
    """The engine failed, and the run ends here.

    ``type`` and ``message`` are the exception's, ``where`` a file and line, ``doing`` the
    call. ``unsupported`` means that the engine reports that it does not support this.
    """

    type: str
    message: str
    where: str = "?"
    doing: str = "?"
    unsupported: bool = False


class End(_Record, frozen=True, tag="end"):
    """The run is over. ``cache_bytes`` is what caches still hold then, where the engine knows."""

    cache_bytes: Count | None = None


Record = Header | Arrived | Removed | Token | Finish | Error | End


# The published JSON Schemas: for the lines of a trace, and for the files of exported vectors ------

TRACE, VECTORS = "trace.schema.json", "vectors.schema.json"


def derived_schema(name: str) -> dict[str, Any]:
    """The schema derived from the records; a test compares the published one with it."""
    made = {TRACE: _of_trace, VECTORS: _of_vectors}[name]
    return {"$schema": DIALECT, **cleaned(made())}


def schema_text(name: str) -> str:
    """``derived_schema`` as the text of the published file."""
    return json.dumps(derived_schema(name), indent=2) + "\n"


def _of_trace() -> dict[str, Any]:
    return {
        "title": "mlx-conformance trace",
        "description": "One line of a trace that `conformance golden judge` judges.",
        **msgspec.json.schema(Record),
    }


def _of_vectors() -> dict[str, Any]:
    found, definitions = msgspec.json.schema_components(
        (Manifest, ScenarioFile, Golden), ref_template="#/$defs/{name}"
    )
    return {
        "title": "mlx-conformance vectors",
        "description": "manifest.json, FAMILY/SCENARIO.json or FAMILY/golden.json, as "
        "`conformance golden export` writes it.",
        "anyOf": list(found),
        "$defs": definitions,
    }
