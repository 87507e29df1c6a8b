"""Records what an adapter passes to its library for a schedule, without decoding anything.

The engine is made as usual, and gets all requests of the schedule. The library's functions that
would begin to compute are replaced by recorders.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

from conformance.core.accepted_fields import Passed, Recorder
from conformance.core.engine import Engine, Submission
from conformance.core.faults.patching import Patch, Right, before, wrap
from conformance.core.schedule import Schedule

# Passed on unchanged in place of an extracted cache and its tokens.
_PREFIX: tuple[Any, Any] = ("an extracted cache", ())


class _NothingComputedError(Exception):
    """Raised in place of a function that would decode."""


def made(recorder: Recorder, kind: type[Any], place: str) -> Patch:
    """Record how objects of a class are made."""
    right = kind.__init__

    def note(*args: Any, **options: Any) -> None:
        recorder.call(place, right, args, options)

    return before(kind, "__init__", note)


def inserted(recorder: Recorder, kind: type[Any], name: str, place: str) -> Patch:
    """Record the calls of a method that inserts prompts, its first argument, and returns uids."""
    uids = itertools.count()

    def insert(right: Right, *args: Any, **options: Any) -> list[int]:
        count = len(args[1])  # after self
        recorder.rows(place, right, args, options, count=count)
        return list(itertools.islice(uids, count))

    return wrap(kind, name, insert)


def called(recorder: Recorder, module: Any, place: str, names: Sequence[str]) -> Patch:
    """Record the calls of a function that decodes; it does not, if there are any prompts.

    Args:
        place: its name in the module.
        names: what it accepts.
    """

    def call(right: Right, *args: Any, **options: Any) -> Any:
        if not (options.get("prompts") or any(args[2:3])):
            return right(*args, **options)
        recorder.call(place, right, args, options, names)
        raise _NothingComputedError

    return wrap(module, place, call)


def record(
    engine: type[Engine],
    model: Any,
    schedule: Schedule,
    recorder: Recorder,
    patches: Sequence[Patch],
    *,
    stepping: bool = False,
) -> tuple[Passed, ...]:
    """What an engine passes for a schedule, up to what it or the library refuses.

    Args:
        stepping: the engine calls the library in ``step``.
    """
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        # Whatever is raised is a verdict of the schedule's case; here, the rest is not passed.
        stack.enter_context(contextlib.suppress(Exception))
        made = engine(model, schedule.options)
        stack.callback(made.close)
        for recorder.arrival, arrival in enumerate(schedule.arrivals):
            made.insert(
                [Submission(r, prefix=_PREFIX if r.continues else None) for r in arrival.requests]
            )
            if stepping:
                with contextlib.suppress(_NothingComputedError):
                    made.step()
    return tuple(recorder.passed)
