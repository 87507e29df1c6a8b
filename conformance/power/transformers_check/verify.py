"""Verifies one family: builds a torch model, saves its checkpoint, compares the outputs."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from conformance.core.engine_options import EngineOptions
from conformance.core.errors import ConformanceError, ModelError
from conformance.core.family import Checkpoint, Facts, Family
from conformance.core.library import Library
from conformance.core.numerics import Envelope
from conformance.core.schedule import Request
from conformance.power.transformers_check import comparing, transformers_model
from conformance.power.transformers_check.check_results import (
    Explained,
    Reading,
    Result,
    State,
)
from conformance.power.transformers_check.known_differences import (
    STEPS,
    Change,
    Known,
    changed,
    prompt_of,
)
from conformance.reference.noise import PERTURBED_RUNS, ULPS

# A model in which a smaller share of parameters has an effect would agree with any weights.
LEAST_EFFECTIVE = 0.5


@dataclass(frozen=True)
class Other:
    """The other side: the torch model and its output."""

    model: Any
    answer: transformers_model.Answer


@dataclass(frozen=True)
class Compared:
    """The outputs of both sides for one checkpoint.

    ``got`` and ``want`` are logprobs ``[places, vocab]`` of the library and of the other side;
    ``saved`` is the config that the other side wrote.
    """

    other: Other
    model: Any
    got: np.ndarray
    want: np.ndarray
    envelope: Envelope
    saved: dict[str, Any]


def verify(family: Family, library: Library, known: Known) -> Result:
    """Compare the library's implementation of the family with transformers' implementation."""
    start = time.perf_counter()
    transformers_model.silence_logging()
    made = tuple(known.adjust)
    model_type = str(changed(family, made)[1]["model_type"])
    result = Result(
        library=library.name,
        family=family.name,
        model_type=model_type,
        state=State.ABSENT,
        adjusted=tuple(a.why for a in known.adjust),
        both={k: v for a in known.adjust for k, v in {**a.both, **dict.fromkeys(a.null)}.items()},
        causes=tuple(Explained(c.wrong, c.at, c.what) for c in known.cause),
        versions={**library.versions(), "transformers and torch": transformers_model.version()},
    )
    if known.absent or transformers_model.auto_class(model_type) is None:
        reason = known.absent or f"transformers has no model type {model_type!r}"
        return msgspec.structs.replace(result, words=reason)
    result = _compared(result, family, library, made)
    if known.cause:
        proof = _compared(result, family, library, (*made, *known.cause), thorough=False)
        result = msgspec.structs.replace(result, proof=proof.reading)
        if proof.reading is None:
            result = msgspec.structs.replace(result, words=f"{result.words}; {proof.words}")
    return msgspec.structs.replace(result, seconds=round(time.perf_counter() - start, 2))


def _compared(
    result: Result,
    family: Family,
    library: Library,
    changes: tuple[Change, ...],
    *,
    thorough: bool = True,
) -> Result:
    """The result with its readings, or with the state and message of the failure."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name)
        config, theirs = changed(family, changes)
        try:
            torch_model = _torch_model(family, theirs, changes)
            answer = transformers_model.answer(torch_model, prompt_of(family), STEPS)
            other = Other(torch_model, answer)
            transformers_model.save(torch_model, folder, changes)
        except ImportError as error:
            return _failed(result, State.MISSING, error)
        except Exception as error:  # noqa: BLE001 - whatever it raises is reported
            return _failed(result, State.UNBUILDABLE, error)
        try:
            found = _run(family, library, folder, config, other)
        except ConformanceError as error:
            return _failed(result, State.UNLOADABLE, error)
        result = _read(result, family, library, found)
        return _thorough(result, family, library, folder, found) if thorough else result


def _failed(result: Result, state: State, error: Exception) -> Result:
    kind = "" if isinstance(error, ConformanceError) else f"{type(error).__name__}: "
    return msgspec.structs.replace(result, state=state, words=kind + " ".join(str(error).split()))


def _torch_model(family: Family, config: dict[str, Any], changes: tuple[Change, ...]) -> Any:
    auto = next((change.auto for change in changes if change.auto), "")
    model = transformers_model.build(config, auto)
    transformers_model.fill(model, family.facts.weights, seed=family.facts.seed)
    for change in changes:
        transformers_model.set_weights(model, change.weights)
        transformers_model.set_attributes(model, change.modules)
    return model


def _run(
    family: Family, library: Library, folder: Path, config: dict[str, Any], other: Other
) -> Compared:
    """Load the checkpoint with the family's own config; returns both sides' passes and noise."""
    file = folder / "config.json"
    saved = json.loads(file.read_text(encoding="utf-8"))
    # Published checkpoints name their architecture; mlx-lm distinguishes some models by it.
    names = {"architectures": saved["architectures"]} if "architectures" in saved else {}
    file.write_text(json.dumps({**names, **config}), encoding="utf-8")
    model = _loaded(family, library, folder)
    prompt, answer = prompt_of(family), other.answer
    want = comparing.logprobs(answer.whole)
    exact = None if answer.exact is None else comparing.logprobs(answer.exact)
    if not np.isfinite(want).all():
        raise ModelError("the torch model gives numbers that are not finite")
    got = _whole(library, model, prompt, answer)
    ulps = ULPS["float32"]
    runs = [
        _whole(library, model, prompt, answer, ulps=ulps, seed=seed)
        for seed in range(PERTURBED_RUNS)
    ]
    envelope = comparing.noise(np.stack(runs), got, want, exact)
    return Compared(other, model, got, want, envelope, saved)


def _loaded(family: Family, library: Library, folder: Path) -> Any:
    plain = Family(family.name, Facts(library=library.name), {}, checkpoint=Checkpoint(str(folder)))
    return library.load(plain, dtype="float32", seed=0)


def _whole(
    library: Library,
    model: Any,
    prompt: tuple[int, ...],
    answer: transformers_model.Answer,
    *,
    ulps: float = 0.0,
    seed: int = 0,
) -> np.ndarray:
    """Logprobs at every place of prompt and answer, from one pass of the library's model."""
    forced = prompt[1:] + answer.tokens
    request = Request("whole", prompt[:1], len(forced))
    return library.teacher_forced(
        model, request, forced, options=EngineOptions(), ulps=ulps, seed=seed
    )


def _read(result: Result, family: Family, library: Library, found: Compared) -> Result:
    prompt = prompt_of(family)
    reading = comparing.read(found.got, found.want, found.envelope)
    request = Request("stream", prompt, STEPS)
    solo = library.single_stream(found.model, request, options=EngineOptions(), steps=STEPS).stream
    assert solo.logprobs is not None
    growing = comparing.logprobs(found.other.answer.growing)
    tail = comparing.last(found.envelope, STEPS)
    # After a different token, the distributions belong to a different text.
    same = next(
        (
            i
            for i, (a, b) in enumerate(zip(solo.tokens, found.other.answer.tokens, strict=True))
            if a != b
        ),
        STEPS - 1,
    )
    stream = comparing.read(solo.logprobs[: same + 1], growing[: same + 1], tail)
    bad = reading.place is not None or stream.place is not None
    return msgspec.structs.replace(
        result,
        state=State.DISAGREES if bad else State.AGREES,
        prompt=len(prompt),
        reading=reading,
        stream=stream,
        tokens=found.other.answer.tokens,
        library_tokens=solo.tokens,
    )


def _thorough(
    result: Result, family: Family, library: Library, folder: Path, found: Compared
) -> Result:
    """The result with additions that a proof does not need: effective parameters, two readings."""
    every = prompt_of(family) + found.other.answer.tokens[:-1]

    def moved(logits: np.ndarray) -> bool:
        now = comparing.logprobs(logits)
        return comparing.read(now, found.want, found.envelope).place is not None

    count, ineffective = transformers_model.ineffective(found.other.model, every, moved)
    result = msgspec.structs.replace(
        result,
        effective=count - len(ineffective),
        parameters=count,
        ineffective=ineffective,
        generated=_generated(found),
        generated_words=found.other.answer.error,
    )
    if result.state is State.AGREES and result.effective < LEAST_EFFECTIVE * count:
        result = msgspec.structs.replace(result, state=State.INSENSITIVE)
    saved, reason = _as_saved(family, library, folder, found)
    return msgspec.structs.replace(result, saved=saved, saved_words=reason)


def _generated(found: Compared) -> Reading | None:
    if found.other.answer.cached is None:
        return None
    tail = comparing.last(found.envelope, STEPS)
    growing = comparing.logprobs(found.other.answer.growing)
    return comparing.read(comparing.logprobs(found.other.answer.cached), growing, tail)


def _as_saved(
    family: Family, library: Library, folder: Path, found: Compared
) -> tuple[Reading | None, str]:
    """The reading of the same checkpoint with the config that transformers wrote."""
    (folder / "config.json").write_text(json.dumps(found.saved), encoding="utf-8")
    try:
        model = _loaded(family, library, folder)
        got = _whole(library, model, prompt_of(family), found.other.answer)
    except ConformanceError as error:
        return None, " ".join(str(error).split())
    return comparing.read(got, found.want, found.envelope), ""
