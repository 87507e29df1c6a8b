"""Draws of real engines with planted defects: each is found, and by the check that is meant."""

import functools
import importlib

import mlx.core as mx
import pytest
from miniatures.trials import Trials

from conformance.core.faults.patching import together, wrap
from conformance.power.faults import registry_with_faults

BATCHES = {"mlx_lm": "mlx_lm.generate", "mlx_vlm": "mlx_vlm.generate.ar"}


@functools.cache
def trials(engine):
    return Trials(engine, registry_with_faults(), ("llama",))


class Draws:
    """Replaces what a library's samplers draw; counts rows within a step, and steps."""

    def __init__(self, library, noise, hits):
        self._library = library
        self._noise = noise
        self._hits = hits
        self._row = self._step = 0
        self._last = None

    def planted(self):
        batch = importlib.import_module(BATCHES[self._library]).GenerationBatch
        samplers = importlib.import_module(f"{self._library}.sample_utils")
        return together(
            wrap(batch, "_step", self._of_step), wrap(samplers, "categorical_sampling", self._drawn)
        )

    def _of_step(self, right, batch):
        self._row, self._step = 0, self._step + 1
        return right(batch)

    def _drawn(self, _, logits, temp):
        self._hits.hit()
        rows = range(self._row, self._row + len(logits))
        self._row = rows.stop
        tokens = []
        for row, own in zip(rows, logits, strict=True):
            noise = self._noise(self._step, row, logits.shape[-1])
            # Without noise, the token of the row before.
            self._last = self._last if noise is None else mx.argmax(own * (1 / temp) + noise)
            tokens.append(self._last)
        return mx.stack(tokens)


def gumbel(number, size):
    return mx.random.gumbel((size,), key=mx.random.key(number))


def right(step, row, size):
    return gumbel(1000 * step + row, size)


def one_key_for_all_rows(step, row, size):
    return gumbel(step, size)


def one_key_for_all_steps(step, row, size):
    return gumbel(row, size)


def joined_like_its_neighbour(step, row, size):
    return None if row >= 32 and row % 2 else right(step, row, size)


def temperature_ignored_after_eight(step, row, size):
    return right(step, row, size) * (row < 8)


def tried(engine, noise, schedule):
    def inject(hits):
        return Draws(engine, noise, hits).planted()

    result, hits = trials(engine).wrong("llama", "distributions", inject, only=(schedule,))
    assert hits
    return result


SCHEDULES = [("mlx_lm", "shared"), ("mlx_lm", "own"), ("mlx_lm", "late"), ("mlx_vlm", "shared")]


@pytest.mark.parametrize(("engine", "schedule"), SCHEDULES)
@pytest.mark.parametrize(
    "noise", [one_key_for_all_rows, one_key_for_all_steps, temperature_ignored_after_eight]
)
def test_draws_that_are_wrong_are_found(engine, schedule, noise):
    assert {finding.check for finding in tried(engine, noise, schedule).evidence} == {"draws"}


@pytest.mark.parametrize("engine", BATCHES)
def test_a_joined_row_that_draws_like_its_neighbour_is_found(engine):
    result = tried(engine, joined_like_its_neighbour, "late")
    assert any("rows do not draw independently" in f.what for f in result.evidence)


@pytest.mark.parametrize(("engine", "schedule"), [*SCHEDULES, ("mlx_vlm", "late")])
def test_other_random_numbers_are_right(engine, schedule):
    assert tried(engine, right, schedule).verdict.good
