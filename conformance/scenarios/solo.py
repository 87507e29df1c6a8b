"""Rungs without an engine: the oracle compared with itself."""

from __future__ import annotations

from conformance.core.engine import Capability
from conformance.core.schedule import Request, Schedule
from conformance.scenarios.build import (
    IN_PIECES,
    LONG,
    MEDIUM,
    SHORT,
    at_once,
    media_request,
    requests_of,
)
from conformance.scenarios.scenario import Brief, Scenario


def _repeat(brief: Brief) -> list[Schedule]:
    requests = requests_of(brief, (SHORT, MEDIUM, LONG))
    return [at_once("repeat", *requests, *_media(brief))]


def _rechunked(brief: Brief) -> list[Schedule]:
    requests = requests_of(brief, (MEDIUM, LONG))
    requests += _media(brief)
    return [at_once("rechunked", *requests, options=IN_PIECES)]


def _media(brief: Brief) -> list[Request]:
    if Capability.MEDIA not in brief.capabilities:
        return []
    return [media_request(brief, kind, kind) for kind in brief.modalities if kind != "text"]


REPEAT = Scenario(
    name="repeat",
    rung=10,
    summary="the single stream twice, and against the pass without a cache",
    needs=frozenset({Capability.LOGPROBS}),
    make=_repeat,
    oracle_only=True,
)
RECHUNKED = Scenario(
    name="rechunked",
    rung=15,
    summary="the single stream with its prompt in other pieces",
    needs=frozenset({Capability.LOGPROBS, Capability.CHUNKED}),
    make=_rechunked,
    oracle_only=True,
)
