"""Checks call by call that an adapter keeps the engine protocol, whatever the tokens are.

``checks/`` examine recordings of runs; this module examines each returned value, so that a message
can name the adapter's method.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from conformance.core.engine import Capability, Engine, Submission
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import Unsupported
from conformance.core.failures import says_unsupported
from conformance.core.schedule import Request, Stage
from conformance.core.trace import FinishReason, StepOutput, TokenEvent
from conformance.core.unavailable import error_text

# A run has stalled after this many steps without a token or a piece of prompt.
_IDLE_STEPS = 8
# How far the sum of a step's probabilities may be from 1 in half precision.
_SUM_SLACK = 0.05


class Broken(Exception):  # noqa: N818 - it says what is broken
    """The adapter violates the protocol; the text says how."""


class Wrong(Exception):  # noqa: N818
    """Code below the adapter raised; the text is the exception."""


def keep_contract(
    engine_class: type[Engine],
    model: Any,
    requests: Sequence[Request],
    want: Mapping[str, tuple[int, ...]],
    vocab: int,
) -> None:
    """Make all calls of the adapter, forced if it can be, and check each returned value.

    Args:
        want: the tokens of each request's single stream.
        vocab: entries of each step's logprobs.

    Raises:
        Broken: the adapter violates the protocol.
        Wrong: code below the adapter raised an exception.
        Unsupported: the library does not support this.
    """
    engine = _called(engine_class, "__init__", lambda: engine_class(model, EngineOptions()))
    try:
        contract = _Contract(engine_class, engine, want, vocab)
        contract.decode(requests)
        if Capability.CANCEL in engine_class.capabilities:
            contract.cancel(requests)
    except BaseException:
        _close_ignoring_errors(engine)
        raise
    _called(engine_class, "close()", engine.close)


class _Contract:
    """One adapter, and its requests so far."""

    def __init__(
        self, kind: type[Engine], engine: Engine, want: Mapping[str, tuple[int, ...]], vocab: int
    ) -> None:
        self._kind, self._engine, self._want, self._vocab = kind, engine, dict(want), vocab
        self._produced: dict[str, list[int]] = {}
        self._over: dict[str, str] = {}

    def decode(self, requests: Sequence[Request]) -> None:
        """Insert all requests, step until each has ended, then take two more steps."""
        self._insert(requests)
        self._to_the_end()

    def cancel(self, requests: Sequence[Request]) -> None:
        """Insert them under other names, remove the first while it decodes, let another join."""
        self._produced, self._over = {}, {}
        first, *_ = again = self._renamed("again", requests)
        self._insert(again)
        while not self._produced[first.request_id]:
            self._step_until_progress()
        if first.request_id not in self._over:
            _called(self._kind, "remove()", lambda: self._engine.remove([first.request_id]))
            self._over[first.request_id] = "was removed"
        if Capability.LATE_JOIN in self._kind.capabilities:
            self._insert(self._renamed("late", requests[:1]))
        self._to_the_end()

    def _renamed(self, prefix: str, requests: Sequence[Request]) -> list[Request]:
        renamed = [replace(r, request_id=f"{prefix}_{r.request_id}") for r in requests]
        for old, new in zip(requests, renamed, strict=True):
            self._want[new.request_id] = self._want[old.request_id]
        return renamed

    def _to_the_end(self) -> None:
        """Step until each has ended, then twice more; each must return the tokens it was fed."""
        while len(self._over) < len(self._produced):
            self._step_until_progress()
        self._check_idle()
        for name, tokens in self._produced.items():
            forced = Capability.FORCED in self._kind.capabilities
            fed = self._want[name][: len(tokens) if "removed" in self._over[name] else None]
            if forced and tuple(tokens) != fed:
                raise Broken(f"request {name!r} was fed {list(fed)} and step() gave back {tokens}")

    def _insert(self, requests: Sequence[Request]) -> None:
        can_force = Capability.FORCED in self._kind.capabilities
        submissions = [
            Submission(r, forced=self._want[r.request_id] if can_force else None) for r in requests
        ]
        self._produced |= {r.request_id: [] for r in requests}
        _called(self._kind, "insert()", lambda: self._engine.insert(submissions))

    def _step_until_progress(self) -> None:
        for _ in range(_IDLE_STEPS):
            if self._step():
                return
        waiting = ", ".join(name for name in self._produced if name not in self._over)
        raise Broken(f"step() gave nothing {_IDLE_STEPS} times in a row while {waiting} waits")

    def _check_idle(self) -> None:
        """Take two more steps, without any event; then nothing may be held."""
        for _ in range(2):
            self._step()
        held = [name for name, stage in self._stages().items() if stage is not Stage.FINISHED]
        if Capability.STAGES in self._kind.capabilities and held:
            raise Broken(f"stages() still names {', '.join(held)} after all have ended")

    def _step(self) -> bool:
        """Take one step; return whether it gave a token or processed a prompt."""
        output = _called(self._kind, "step()", self._engine.step)
        if not isinstance(output, StepOutput):
            raise Broken(f"step() gave {_kind(output)}, must give a StepOutput")
        for event in output.events:
            self._check_event(event)
        if unknown := sorted(set(output.processed) - set(self._produced)):
            raise Broken(f"step() worked on the prompt of {unknown[0]!r}, which was not inserted")
        self._stages()
        self._check_rows()
        return bool(output.events or output.processed)

    def _stages(self) -> Mapping[str, Stage]:
        stages: Mapping[str, Stage] = _called(self._kind, "stages()", self._engine.stages)
        for name, stage in stages.items():
            if name not in self._produced:
                raise Broken(f"stages() names {name!r}, which was not inserted")
            if not isinstance(stage, Stage):
                raise Broken(f"stages() gave {_kind(stage)} for {name!r}, must give a Stage")
        return stages

    def _check_rows(self) -> None:
        for name in _called(self._kind, "rows()", self._engine.rows):
            if name not in self._produced:
                raise Broken(f"rows() names {name!r}, which was not inserted")
        held = _called(self._kind, "cache_bytes()", self._engine.cache_bytes)
        if held is not None and (not isinstance(held, int) or held < 0):
            raise Broken(f"cache_bytes() gave {held!r}, must give a number of bytes or None")

    def _check_event(self, event: Any) -> None:
        if not isinstance(event, TokenEvent):
            raise Broken(f"step() gave {_kind(event)} among its events, must give TokenEvent")
        name = event.request_id
        if name not in self._produced:
            raise Broken(f"step() gave a token of {name!r}, which was not inserted")
        if name in self._over:
            raise Broken(f"step() gave a token of {name!r} after it {self._over[name]}")
        if not isinstance(event.token, int) or not 0 <= event.token < self._vocab:
            raise Broken(
                f"step() gave {event.token!r} as a token of {name!r}, must give an int below "
                f"{self._vocab}"
            )
        if Capability.LOGPROBS in self._kind.capabilities:
            self._check_logprobs(name, event.logprobs)
        if event.finish_reason is not None:
            if not isinstance(event.finish_reason, FinishReason):
                raise Broken(f"step() gave the finish reason {event.finish_reason!r} for {name!r}")
            self._over[name] = "had finished"
        self._produced[name].append(event.token)
        if name not in self._over and len(self._produced[name]) >= len(self._want[name]):
            raise Broken(
                f"step() gave {name!r} {len(self._want[name])} tokens, all that it asked for, and "
                "no finish reason with the last"
            )

    def _check_logprobs(self, name: str, logprobs: Any) -> None:
        if not isinstance(logprobs, np.ndarray) or logprobs.dtype != np.float32:
            given = str(logprobs.dtype) if isinstance(logprobs, np.ndarray) else _kind(logprobs)
            raise Broken(
                f"step() gave logprobs of {name!r} as {given}, must give a NumPy array of float32"
            )
        if logprobs.shape != (self._vocab,):
            raise Broken(
                f"step() gave logprobs of {name!r} of shape {list(logprobs.shape)}, must give "
                f"[{self._vocab}]"
            )
        top = float(logprobs.max())
        total = top + float(np.log(np.exp(logprobs.astype(np.float64) - top).sum()))
        if np.isfinite(total) and abs(total) > _SUM_SLACK:
            raise Broken(
                f"step() gave logprobs of {name!r} whose probabilities sum to {np.exp(total):.3g}: "
                "logits, not normalised"
            )


def _called(kind: type[Engine], what: str, call: Any) -> Any:
    """The result of a call to the adapter; its exceptions are classified by their origin."""
    try:
        return call()
    except Exception as error:
        if says_unsupported(error):
            raise Unsupported(" ".join(str(error).split())) from error
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{'/'.join(Path(frame.filename).parts[-3:])}:{frame.lineno}"
        text = f"{what} raised {error_text(error)} [{place}]"
        # If the last frame is the call here, the adapter lacks the method or its signature differs.
        own = frame.filename == __file__ or _is_adapter(kind, frame.filename)
        raise (Broken if own else Wrong)(text) from error


def _is_adapter(kind: type[Engine], filename: str) -> bool:
    """Whether a file is in the folder of the adapter's class or of one of its bases."""
    modules = {base.__module__ for base in kind.__mro__ if base is not object}
    found = [sys.modules.get(name) for name in modules]
    folders = {Path(file).parent for m in found if (file := getattr(m, "__file__", None))}
    return Path(filename).parent in folders


def _close_ignoring_errors(engine: Engine) -> None:
    try:
        engine.close()
    except Exception:  # noqa: BLE001 - the earlier error matters
        return


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
