"""Converts a run of a trace to the recording that checks judge: records in, ``Play`` out."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from conformance.checks import Play
from conformance.core.errors import VectorsError
from conformance.core.numerics import Envelope
from conformance.core.schedule import Request
from conformance.core.trace import Stream
from conformance.reference.oracle import cut
from conformance.tools.golden.format import Recorded
from conformance.tools.vectors.contents import Exported
from conformance.tools.vectors.conversion import trace_of
from conformance.tools.vectors.parsing import Run
from conformance.tools.vectors.records import Token
from conformance.tools.vectors.sparse_logprobs import row, row_pair


def play_of(run: Run, exported: Exported, golden: Mapping[str, Recorded], vocab: int) -> Play:
    """The run as it is judged, with the goldens of its schedule as the expected output.

    Args:
        golden: of the family, by id.
        vocab: number of token ids.

    Raises:
        VectorsError: the run has requests that its schedule lacks, or tokens before the arrival;
            names file and line.
    """
    recorded = {name: golden[key] for name, key in exported.golden.items()}
    tables = _tables(run, recorded, vocab)
    got = {key: mine for key, (_, mine) in tables.items()}
    trace = trace_of(run, exported.schedule, got)
    want = {
        request.request_id: _want(request, recorded[request.request_id], tables, vocab)
        for request in exported.schedule.requests
    }
    noise = {name: _envelope(item) for name, item in recorded.items()}
    shows = any(isinstance(i.record, Token) and i.record.top is not None for i in run.lines)
    return Play(
        exported.schedule,
        (trace,),
        want,
        floor=noise.__getitem__,
        envelope=noise.__getitem__,
        wider=lambda name: [functools.partial(noise.__getitem__, name)],
        full_logprobs=shows,
        staged=False,
    )


# For each request and step: the golden's logprobs and the trace's, [vocab] each.
_Tables = dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]


def _tables(run: Run, recorded: Mapping[str, Recorded], vocab: int) -> _Tables:
    tables: _Tables = {}
    for line in run.lines:
        token = line.record
        if not isinstance(token, Token) or token.top is None:
            continue
        beyond = [token_id for token_id, _ in token.top if token_id >= vocab]
        if beyond:
            raise VectorsError(
                f"{line.where}: field 'top' has token {beyond[0]}, the vocabulary has {vocab}"
            )
        one = recorded.get(token.request_id)
        # Tokens after the golden's end are wrong, whatever their logprobs are.
        want = one.top[token.step] if one is not None and token.step < len(one.top) else token.top
        tables[token.request_id, token.step] = row_pair(want, token.top, vocab)
    return tables


def _want(request: Request, recorded: Recorded, tables: _Tables, vocab: int) -> Stream:
    rows = []
    for step, top in enumerate(recorded.top):
        pair = tables.get((request.request_id, step))
        rows.append(pair[0] if pair is not None else row(top, vocab))
    return cut(Stream(recorded.tokens, np.stack(rows)), request)


def _envelope(recorded: Recorded) -> Envelope:
    noise = np.array(recorded.noise, np.float32)
    return Envelope(noise, noise, float(noise.min()))
