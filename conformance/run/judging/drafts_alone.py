"""The drafts that a drafter makes for a row of a schedule alone, with the same ones accepted.

Drafts never change the output. Whether a drafter goes on from the right state is seen in its drafts
alone: they depend on the row's own tokens, and on which of its drafts were accepted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from conformance.backend import random_state
from conformance.core import numerics
from conformance.core.engine import Engine
from conformance.core.rounds import Hints, Round, differs_at, rounds_of
from conformance.core.schedule import Arrival, Schedule
from conformance.core.trace import Trace
from conformance.reference.noise import PERTURBED_RUNS, ULPS
from conformance.reference.subject import Subject
from conformance.run.runner import play

Runs = tuple[tuple[Round, ...], ...]


@dataclass(frozen=True)
class DraftsAlone:
    """Runs each row by itself, on first use; see ``Play.drafted_alone``."""

    subject: Subject
    engine: type[Engine]
    schedule: Schedule
    hints: Mapping[str, Hints]
    _known: dict[tuple[str, tuple[Round, ...]], Runs] = field(default_factory=dict)

    def __call__(self, trace: Trace, name: str) -> Runs:
        """The rounds of the plain run, and of perturbed ones where they are needed."""
        rounds = tuple(rounds_of(trace, name))
        if not rounds or not _counted(rounds):
            return ()
        key = name, rounds
        if key not in self._known:
            self._known[key] = tuple(self._runs(name, rounds))
        return self._known[key]

    def _runs(self, name: str, rounds: Sequence[Round]) -> Iterator[tuple[Round, ...]]:
        plain = self._run(name, rounds)
        yield plain
        place = differs_at(rounds, plain)
        if place is None:
            return
        for seed in range(PERTURBED_RUNS):
            with self._noise(seed):
                moved = self._run(name, rounds)
            yield moved
            other = differs_at(moved, plain)
            if other is not None and other <= place:
                return

    def _run(self, name: str, rounds: Sequence[Round]) -> tuple[Round, ...]:
        """A batch of one: the request alone, with as many tokens of each draft accepted."""
        drafting, request = self.schedule.options.drafting, self.schedule.request(name)
        assert drafting is not None
        right = tuple(max(0, each.given - 1) for each in rounds)
        options = replace(self.schedule.options, drafting=replace(drafting, right=right))
        # Near its limit an engine drafts fewer tokens; in the batch, other rows may go on.
        longer = replace(request, max_tokens=request.max_tokens + max(r.drafted for r in rounds))
        alone = Schedule(f"{name} alone", (Arrival((longer,)),), options=options)
        subject, origin = self.subject, self.subject.origin
        random_state.seed(origin.seed if origin is not None else 0)
        with subject.around(self.schedule.name), subject.phases("single stream"):
            model = subject.model_for(self.engine)
            made = play(
                self.engine, model, alone, meter=subject.meter, hints={name: self.hints[name]}
            )
        return tuple(rounds_of(made, name))

    def _noise(self, seed: int) -> contextlib.AbstractContextManager[None]:
        origin = self.subject.origin
        ulps = numerics.FACTOR * ULPS[origin.dtype if origin is not None else "float32"]
        return self.subject.library.decoder_perturbed(self.subject.model, ulps=ulps, seed=seed)


def _counted(rounds: Sequence[Round]) -> bool:
    """Whether it is known of each round how many of its tokens were accepted."""
    return all(0 < each.given <= each.drafted + 1 for each in rounds[:-1])
