"""Generates sequences of verbs, runs them on caches and on plain rows, and shrinks failures."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from conformance.power.caches.discovery import Found
from conformance.power.caches.feeding import UNFED
from conformance.power.caches.finding import (
    HARD,
    FindingError,
    Judge,
    KnownError,
    Problem,
    raised_at,
    several,
)
from conformance.power.caches.kinds.kind import DTYPES, Kind
from conformance.power.caches.stores import STORES, Call, play_store
from conformance.power.caches.verbs import Verbs

_LEAST_STEPS, _MOST_STEPS = 4, 7
# Caches grow by this many columns, so that growth happens within few tokens.
_STEP = 4
# The dtype of the fixed sequences: not the default dtype of zeros.
_SMALL = "bfloat16"

Known = Callable[[FindingError], str | None]

_number = st.integers(0, 59)
_how = st.integers(0, UNFED + 19)
_lengths = st.lists(st.integers(0, 8), min_size=1, max_size=4)


def _step(verb: str, *numbers: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(*numbers).map(lambda given: Step(verb, _flat(given)))


def _flat(given: Sequence[Any]) -> tuple[int, ...]:
    out: list[int] = []
    for one in given:
        out += one if isinstance(one, list) else [one]
    return tuple(out)


_STEPS = st.one_of(
    # Shrinking replaces irrelevant verbs by this one. If the list could shrink instead, short
    # sequences would be drawn too often.
    _step("nothing"),
    _step("decode", st.integers(0, 3)),
    _step("block", st.integers(0, 2)),
    _step("filter", st.lists(_number, min_size=1, max_size=4)),
    _step("extend", st.integers(0, 2), _how, _lengths),
    _step("prefill", _number, _number, _lengths),
    # With rows that join in between prepare and finalize.
    _step("prefill", _number, st.sampled_from([1, 4, 7]), _lengths),
    _step("extract", _number),
    _step("merge", st.integers(0, 8)),
    _step("trim", st.integers(0, 2)),
    _step("copy"),
    _step("keep", st.integers(0, 8), st.integers(0, 1)),
    _step("reload"),
    _step("restore"),
)
_PROGRAMS = st.tuples(
    st.sampled_from(sorted(DTYPES, reverse=True)).map(str),
    _step("new", _how, _lengths),
    st.lists(_STEPS, min_size=_LEAST_STEPS, max_size=_MOST_STEPS),
)


# Sequences that are drawn too seldom, and so are run first: unfed batches on either side of extend;
# full rings, alone and with others; rows, or the capacity of batches, one column apart.
_RARE = (
    "new 0 0; extend 0 0 3 5; decode 1; extract 0",
    "new 3 4 2; extend 0 0 0 0; decode 2; filter 1 2",
    "new 3 8 3; decode 3; block 1; extract 1; merge 5",
    "new 3 5 4; decode 3; decode 3; extend 2 3 7 6; decode 3; extract 2; extract 0",
    "new 3 8 7; decode 3; extend 2 3 8 5; extract 0; filter 1 2; decode 0",
    "new 3 6 5; decode 0; prefill 4 0 4 3 2; decode 3; extract 1",
    "new 3 3 2; extend 0 0 3 1; decode 0",
    "new 3 5 5; trim 0; extend 0 3 4 2; decode 1",
    "new 3 5 4; trim 0; decode 0; trim 1; block 1; filter 1; trim 0; extract 0",
)


@dataclass
class Outcome:
    """The findings of all sequences on one class.

    Attributes:
        name: the class's name.
        verbs: how often each verb was run.
        sequences: the number of sequences that were run.
        failure: the unknown difference, with its shortest sequence.
        known: for each known defect found, its shortest sequence.
    """

    name: str
    verbs: Counter[str] = field(default_factory=Counter)
    sequences: int = 0
    failure: FindingError | None = None
    known: dict[str, FindingError] = field(default_factory=dict)


def nothing_known(_: FindingError) -> str | None:
    """The ``known`` of callers without known defects."""
    return None


def explore(
    found: Found, *, examples: int, seed: int = 0, known: Known = nothing_known, shrink: bool = True
) -> Outcome:
    """Run random sequences on the class as each of its kinds until one finds an unknown defect.

    Args:
        found: the class.
        examples: the number of sequences, over all kinds.
        seed: the same seed gives the same sequences.
        known: returns the id of a known defect that explains a finding.
        shrink: whether to look for the shortest sequence.
    """
    outcome = Outcome(found.name)

    def judge(finding: FindingError) -> bool:
        name = known(finding)
        if name is None:
            return False
        best = outcome.known.get(name)
        if best is None or len(finding.steps) < len(best.steps):
            outcome.known[name] = finding
        return True

    if found.is_store:
        with small_steps(found.cls):
            outcome.failure = _of_store(found, outcome, examples=examples, seed=seed, shrink=shrink)
        return outcome

    share = max(1, examples // max(1, len(found.kinds)))
    with small_steps(found.cls):
        for number, kind in enumerate(found.kinds):
            try:
                for play in _RARE:
                    outcome.sequences += 1
                    harness = Harness(found.name, kind, _SMALL, judge=judge, number=number)
                    harness.play(_read(play.split("; ")))
                _attempts(kind, number, outcome, judge, examples=share, seed=seed, shrink=shrink)()
            except FindingError as finding:
                # Hypothesis raises the finding of the shortest sequence.
                outcome.failure = finding
                break
    return outcome


def _attempts(
    kind: Kind,
    number: int,
    outcome: Outcome,
    judge: Judge,
    *,
    examples: int,
    seed: int,
    shrink: bool,
) -> Callable[[], None]:
    """Run all sequences on one kind."""

    @hypothesis.seed(seed)
    @_drawing(examples, shrink=shrink)
    @given(_PROGRAMS)
    def attempt(program: tuple[str, Step, list[Step]]) -> None:
        dtype, first, steps = program
        harness = Harness(outcome.name, kind, dtype, judge=judge, number=number)
        try:
            harness.play([first, *steps])
        finally:
            outcome.verbs += harness.verbs
            outcome.sequences += 1

    return attempt


def _drawing(examples: int, *, shrink: bool) -> settings:
    return settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=hypothesis.Verbosity.quiet,
    )


def _of_store(
    found: Found, outcome: Outcome, *, examples: int, seed: int, shrink: bool
) -> FindingError | None:
    """The difference of a store of tokens from plain data; ``None`` if they agree."""
    make = STORES[found.cls.__name__]

    @hypothesis.seed(seed)
    @_drawing(examples, shrink=shrink)
    @given(make.programs)
    def attempt(program: tuple[Call, list[Call]]) -> None:
        first, calls = program
        outcome.sequences += 1
        play_store(found.name, make(found.cls), [first, *calls], outcome.verbs)

    try:
        attempt()
    except FindingError as finding:
        return finding
    return None


def replay(play: str, classes: Sequence[Found], judge: Judge) -> None:
    """Rerun one sequence of a finding or an entry.

    Raises:
        FindingError: the first difference that ``judge`` does not know.
    """
    head, *steps = play.split("; ")
    name, number, dtype = head.split()
    found = next(one for one in classes if one.name == name)
    with small_steps(found.cls):
        Harness(name, found.kinds[int(number)], dtype, judge=judge).play(_read(steps))


def _read(steps: Sequence[str]) -> list[Step]:
    return [Step(verb, tuple(map(int, numbers))) for verb, *numbers in map(str.split, steps)]


@contextmanager
def small_steps(cls: type[Any]) -> Iterator[None]:
    """Let the caches of the class's module grow by few columns at a time."""
    module = sys.modules[cls.__module__]
    places = [
        (one, name, vars(one)[name])
        for one in vars(module).values()
        if isinstance(one, type)
        for name in ("step", "cache_step")
        if isinstance(vars(one).get(name), int)
    ]
    for one, name, _ in places:
        setattr(one, name, _STEP)
    try:
        yield
    finally:
        for one, name, value in places:
            setattr(one, name, value)


class Step(NamedTuple):
    """One verb and its numbers; a number that is too large is taken modulo."""

    verb: str
    numbers: tuple[int, ...] = ()


class Harness:
    """One cache, its rows, and the verbs so far."""

    def __init__(self, name: str, kind: Kind, dtype: str, *, judge: Judge, number: int = 0) -> None:
        """``number`` is the index of the kind if the class has several."""
        self.name = name
        self._played = [f"{name} {number} {dtype}"]
        self.kind = kind
        self.steps: list[str] = []
        self.verbs: Counter[str] = Counter()
        self._judge = judge
        self._verb = "new"
        self._facts: set[str] = set()
        self._before: set[str] = set()
        self._comparing = False
        kind.begin(dtype)
        self._state = Verbs(kind, self.report, self._note)
        self.steps.append(f"dtype {dtype}")

    def play(self, steps: Sequence[Step]) -> None:
        """Run all verbs in order; verbs that the class lacks are skipped.

        Raises:
            FindingError: the first difference that no known defect explains.
        """
        try:
            for step in steps:
                self._play(step)
        except KnownError:
            pass

    def _play(self, step: Step) -> None:
        verb: Callable[..., str | None] = getattr(self._state, step.verb)
        self._verb = step.verb
        self._before = self._cache_facts()
        self._comparing = False
        self.steps.append(step.verb)
        self._played.append(" ".join([step.verb, *map(str, step.numbers)]))
        fact, had = f"after {step.verb}", set(self._facts)
        self._facts.add(fact)
        try:
            text = verb(*step.numbers)
            if text is None:
                self.steps.pop()
                self._played.pop()
                self._facts = had
                return
            self.steps[-1] = text
            self.verbs[step.verb] += 1
            self._compare()
        except (FindingError, KnownError):
            raise
        except Exception as error:  # noqa: BLE001 (whatever the library raises is the finding)
            self.report(Problem("error", f"{type(error).__name__}: {error}{raised_at(error)}"))

    def _note(self, text: str) -> str:
        """Record the verb's text before the verb runs, so that failures are readable."""
        self.steps[-1] = f"extend by a batch: {text}" if self._verb == "extend" else text
        return self.steps[-1]

    def _compare(self) -> None:
        self._comparing = True
        for problem in self._state.compare():
            self.report(problem)

    def _cache_facts(self) -> set[str]:
        cache = self._state.cache
        return self.kind.facts(cache) if cache is not None else set()

    def report(
        self,
        problem: Problem,
        before: frozenset[str] | set[str] = frozenset(),
        *,
        probed: bool = False,
    ) -> None:
        """Raise an unknown difference; end the sequence if a known defect corrupted the cache.

        Args:
            problem: the difference.
            before: facts about the cache before it was fed.
            probed: whether it was found in a copy or an extracted row.
        """
        facts = self._facts | before | self._facts_now(problem)
        finding = FindingError(
            self.name,
            self._verb,
            problem,
            facts=frozenset(facts),
            steps=self.steps,
            play="; ".join(self._played),
        )
        if not self._judge(finding):
            raise finding
        if problem.what in HARD and not probed:
            raise KnownError

    def _facts_now(self, problem: Problem) -> set[str]:
        flags = {
            "empty": not self._state.has_content,
            "ragged": len({len(row) for row in self._state.rows}) > 1,
            "several": several(problem),
            "in the verb": not self._comparing,
        }
        return self._before | self._cache_facts() | {name for name, true in flags.items() if true}
