"""Witnesses of quantized caches on traces that just have, or have not, what they look for."""

import pytest

from conformance.core.engine_options import EngineOptions, KvQuant
from conformance.core.schedule import Arrival, Request, Schedule, Stage
from conformance.core.trace import CachedLayer, Mode, Step, StepOutput, Trace
from conformance.scenarios import quantized_witnesses as kept

Q, P, D, F = Stage.QUEUED, Stage.PREFILL, Stage.DECODE, Stage.FINISHED


def trace(*steps, quantized=True, start=4, lengths=(2, 6)):
    """A run of ``a`` and ``b``, given by their stages: ``QD`` is a queued, b in decode."""
    letters = {"Q": Q, "P": P, "D": D, "F": F}
    requests = tuple(
        Request(name, (1,) * length, 3) for name, length in zip("ab", lengths, strict=True)
    )
    options = EngineOptions(kv=KvQuant(8, start=start))
    schedule = Schedule("s", (Arrival(requests),), options=options)
    layers = (CachedLayer(8, quantized=False), CachedLayer(2, quantized))
    return Trace(
        schedule,
        Mode.FORCED,
        tuple(
            Step(
                index,
                {name: letters[letter] for name, letter in zip("ab", text, strict=True)},
                StepOutput(),
                layers=layers,
            )
            for index, text in enumerate(steps)
        ),
    )


@pytest.mark.parametrize(
    ("witness", "yes", "no"),
    [
        (kept.row_leaves(), ("DD", "DF"), ("DD", "FF")),
        (kept.row_leaves(), ("DD", "FD"), ("QD", "DD")),
        (kept.row_joins(), ("QD", "DD"), ("QQ", "DD")),
        (kept.row_joins(), ("DP", "DD"), ("DD", "DF")),
        (kept.either_side_of_start(), ("QQ", "PP"), ("DP", "FD")),
        (kept.either_side_of_start(), ("DD",), ("PD",)),
    ],
)
def test_what_happened_to_rows(witness, yes, no):
    assert witness.seen(trace(*yes))
    assert not witness.seen(trace(*no))


@pytest.mark.parametrize("witness", [kept.quantized(), kept.row_leaves(), kept.row_joins()])
def test_caches_must_be_quantized(witness):
    steps = ("QD", "DD", "DF")
    assert witness.seen(trace(*steps))
    assert not witness.seen(trace(*steps, quantized=False))


@pytest.mark.parametrize("lengths", [(2, 3), (4, 6)])
def test_rows_on_one_side_of_the_start_do_not_do(lengths):
    assert not kept.either_side_of_start().seen(trace("PP", "DD", lengths=lengths))
    assert not kept.either_side_of_start().seen(trace("PP", "DD", start=0, lengths=lengths))
