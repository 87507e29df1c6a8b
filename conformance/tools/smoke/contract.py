"""Does an adapter keep the engine protocol? Asked call by call, whatever the tokens are.

Checks look at whole recordings of runs; this looks at each value as it is handed over, so that it
can say which method of the adapter gave what it must not.
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
from conformance.core.errors import Unsupported
from conformance.core.failures import says_unsupported
from conformance.core.options import EngineOptions
from conformance.core.schedule import Request, Stage
from conformance.core.trace import FinishReason, StepOutput, TokenEvent

# Steps without a token or a piece of prompt, after which nothing more is expected.
_IDLE_STEPS = 8
# How far the probabilities of a step may be from summing to 1; half precision loses as much.
_SUM_SLACK = 0.05


class Broken(Exception):  # noqa: N818 - it says what is broken
    """The adapter breaks the protocol; the text says by what."""


class Wrong(Exception):  # noqa: N818
    """What lies below the adapter raised; the text says what."""


def keep_contract(
    engine_class: type[Engine],
    model: Any,
    requests: Sequence[Request],
    want: Mapping[str, tuple[int, ...]],
    vocab: int,
) -> None:
    """Drive the adapter through all its calls, forced where it can be, and look at each answer.

    Args:
        want: the tokens of each request's single stream.
        vocab: entries of each step's logprobs.

    Raises:
        Broken: the adapter breaks the protocol.
        Wrong: an exception comes from below the adapter.
        Unsupported: the library says that it cannot do this.
    """
    engine = _called(engine_class, "__init__", lambda: engine_class(model, EngineOptions()))
    try:
        contract = _Contract(engine_class, engine, want, vocab)
        contract.decode(requests)
        if Capability.CANCEL in engine_class.capabilities:
            contract.cancel(requests)
    except BaseException:
        _close_quietly(engine)
        raise
    _called(engine_class, "close()", engine.close)


class _Contract:
    """One adapter at work."""

    def __init__(
        self, kind: type[Engine], engine: Engine, want: Mapping[str, tuple[int, ...]], vocab: int
    ) -> None:
        self._kind, self._engine, self._want, self._vocab = kind, engine, dict(want), vocab
        self._produced: dict[str, list[int]] = {}
        self._over: dict[str, str] = {}

    def decode(self, requests: Sequence[Request]) -> None:
        """Insert all, step until each has ended, and a little longer."""
        self._insert(requests)
        self._to_the_end()

    def cancel(self, requests: Sequence[Request]) -> None:
        """Insert them under other names, remove the first in mid-decode, let one more join."""
        self._produced, self._over = {}, {}
        first, *_ = again = self._renamed("again", requests)
        self._insert(again)
        while not self._produced[first.request_id]:
            self._until_something()
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
        """Step until each has ended, and a little longer; each gives back what it was fed."""
        while len(self._over) < len(self._produced):
            self._until_something()
        self._epilogue()
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

    def _until_something(self) -> None:
        for _ in range(_IDLE_STEPS):
            if self._step():
                return
        waiting = ", ".join(name for name in self._produced if name not in self._over)
        raise Broken(f"step() gave nothing {_IDLE_STEPS} times in a row while {waiting} waits")

    def _epilogue(self) -> None:
        """Two more steps, in which nobody may speak; and nothing is still held."""
        for _ in range(2):
            self._step()
        held = [name for name, stage in self._stages().items() if stage is not Stage.FINISHED]
        if Capability.STAGES in self._kind.capabilities and held:
            raise Broken(f"stages() still names {', '.join(held)} after all have ended")

    def _step(self) -> bool:
        """One step; whether anything came of it."""
        output = _called(self._kind, "step()", self._engine.step)
        if not isinstance(output, StepOutput):
            raise Broken(f"step() gave {_kind(output)}, must give a StepOutput")
        for event in output.events:
            self._look_at(event)
        if strangers := sorted(set(output.processed) - set(self._produced)):
            raise Broken(f"step() worked on the prompt of {strangers[0]!r}, which nobody inserted")
        self._stages()
        self._look_at_rows()
        return bool(output.events or output.processed)

    def _stages(self) -> Mapping[str, Stage]:
        stages: Mapping[str, Stage] = _called(self._kind, "stages()", self._engine.stages)
        for name, stage in stages.items():
            if name not in self._produced:
                raise Broken(f"stages() names {name!r}, which nobody inserted")
            if not isinstance(stage, Stage):
                raise Broken(f"stages() gave {_kind(stage)} for {name!r}, must give a Stage")
        return stages

    def _look_at_rows(self) -> None:
        for name in _called(self._kind, "rows()", self._engine.rows):
            if name not in self._produced:
                raise Broken(f"rows() names {name!r}, which nobody inserted")
        held = _called(self._kind, "cache_bytes()", self._engine.cache_bytes)
        if held is not None and (not isinstance(held, int) or held < 0):
            raise Broken(f"cache_bytes() gave {held!r}, must give a number of bytes or None")

    def _look_at(self, event: Any) -> None:
        if not isinstance(event, TokenEvent):
            raise Broken(f"step() gave {_kind(event)} among its events, must give TokenEvent")
        name = event.request_id
        if name not in self._produced:
            raise Broken(f"step() gave a token of {name!r}, which nobody inserted")
        if name in self._over:
            raise Broken(f"step() gave a token of {name!r} after it {self._over[name]}")
        if not isinstance(event.token, int) or not 0 <= event.token < self._vocab:
            raise Broken(
                f"step() gave {event.token!r} as a token of {name!r}, must give an int below "
                f"{self._vocab}"
            )
        if Capability.LOGPROBS in self._kind.capabilities:
            self._look_at_logprobs(name, event.logprobs)
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

    def _look_at_logprobs(self, name: str, logprobs: Any) -> None:
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
    """What a call of the adapter gives; its exceptions by where they come from."""
    try:
        return call()
    except Exception as error:
        if says_unsupported(error):
            raise Unsupported(" ".join(str(error).split())) from error
        frame = traceback.extract_tb(error.__traceback__)[-1]
        words = " ".join(f"{type(error).__name__}: {error}".split())
        place = f"{'/'.join(Path(frame.filename).parts[-3:])}:{frame.lineno}"
        text = f"{what} raised {words} [{place}]"
        # Where the last frame is our own call, the adapter has no such method, or of another kind.
        own = frame.filename == __file__ or _is_adapter(kind, frame.filename)
        raise (Broken if own else Wrong)(text) from error


def _is_adapter(kind: type[Engine], filename: str) -> bool:
    """Whether a file is the adapter's, or of what lies beside it: its own class or a base of it."""
    modules = {base.__module__ for base in kind.__mro__ if base is not object}
    found = [sys.modules.get(name) for name in modules]
    folders = {Path(file).parent for m in found if (file := getattr(m, "__file__", None))}
    return Path(filename).parent in folders


def _close_quietly(engine: Engine) -> None:
    try:
        engine.close()
    except Exception:  # noqa: BLE001 - what was found before it matters
        return


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
