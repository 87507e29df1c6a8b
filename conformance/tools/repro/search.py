"""Finds the first failing schedule of a case, shrinks it, and collects what a script needs."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from conformance.backend.half_products import needed_by
from conformance.checks import CHECKS, Play
from conformance.checks.expectations import Defect
from conformance.checks.forced import measure
from conformance.core.engine import Engine
from conformance.core.errors import ConformanceError, ModelError, NoScriptError, ReproError
from conformance.core.failures import failure_of
from conformance.core.family import Family
from conformance.core.library import Library, Outline
from conformance.core.schedule import Request, Schedule, Weigh
from conformance.core.trace import Failure
from conformance.core.verdict import CaseId, Finding, Verdict
from conformance.core.weights import Shape
from conformance.reference.subject import Subject
from conformance.run.judging.oracle_check import judge_oracle
from conformance.run.judging.playing import play_schedule
from conformance.run.runner import step_bound
from conformance.run.session import Session
from conformance.scenarios import Scenario
from conformance.scenarios.minimizing import fewest
from conformance.scenarios.smaller_schedules import smallest
from conformance.tools.checkpoints.folder import read_header
from conformance.tools.repro.found import FieldPath, Found, Joined, Kind, Reduction, Symptom
from conformance.tools.repro.refusing import Reason, refuse_case
from conformance.tools.repro.steps import by_steps, last_step

# Seconds for shrinking a schedule.
SECONDS = 20.0
# As safetensors spells them.
_FLOATING = frozenset({"F32", "F16", "BF16"})


@dataclass(frozen=True)
class Wanted:
    """Which failure of a case to look for; empty fields allow any."""

    schedules: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    entry: Defect | None = None
    lenient: bool = False  # unknown schedules are ignored


def find(
    session: Session, case: CaseId, wanted: Wanted | None = None, *, seconds: float = SECONDS
) -> Found:
    """The case's first failing schedule, shrunk.

    Raises:
        ReproError: no schedule fails as wanted.
        ModelError: the library cannot load the model.
    """
    wanted = wanted or Wanted()
    engine = session.registry.engines[case.engine]
    scenario = session.registry.scenarios[case.scenario]
    subject = _loaded(session, case)
    refuse_case(subject, case, engine)
    with _refusing(f"{case}: the library fails before anything is played", Reason.BEFORE):
        schedules = session.schedules(case)

    def observed_in(candidate: Schedule) -> Observed | None:
        return observe(subject, engine, scenario, candidate)

    symptom, schedule = _first(observed_in, schedules, case, wanted)

    def fails(candidate: Schedule) -> bool:
        seen = observed_in(candidate)
        return seen is not None and seen[0].like(symptom)

    if not fails(schedule):
        message = f"{schedule.name} fails, but not when its events happen at step numbers"
        raise NoScriptError(f"{case}: {message}", Reason.STEPS)
    small = smallest(schedule, fails, seconds=seconds).value
    seen = observed_in(small)
    if seen is not None:
        symptom = seen[0]
    return gathered(session, case, Reduction(small, symptom), wanted.entry)


def _loaded(session: Session, case: CaseId) -> Subject:
    with _refusing(f"{case}: the model cannot be loaded", Reason.LOADING):
        return session.subject(case)


@contextlib.contextmanager
def _refusing(what: str, reason: Reason) -> Iterator[None]:
    """Whatever a library raises is why there is no script; our own errors are left as they are."""
    try:
        yield
    except ConformanceError:
        raise
    except Exception as error:
        raise NoScriptError(f"{what}, {type(error).__name__}: {error}", reason) from error


def _first(
    observed_in: Callable[[Schedule], Observed | None],
    schedules: Sequence[Schedule],
    case: CaseId,
    wanted: Wanted,
) -> tuple[Symptom, Schedule]:
    names = [schedule.name for schedule in schedules]
    wrong = [name for name in wanted.schedules if name not in names]
    if wrong and not wanted.lenient:
        raise ReproError(f"{case}: there is no schedule {wrong[0]!r}; there are {', '.join(names)}")
    good = []
    for schedule in schedules:
        if wanted.schedules and schedule.name not in wanted.schedules:
            continue
        seen = observed_in(schedule)
        if seen is not None and (not wanted.verdicts or seen[0].verdict in wanted.verdicts):
            return seen
        good.append(schedule.name)
    as_wanted = f" as {' or '.join(wanted.verdicts)}" if wanted.verdicts else ""
    raise ReproError(f"{case}: no schedule of it fails{as_wanted}: {', '.join(good)}")


def gathered(session: Session, case: CaseId, reduction: Reduction, entry: Defect | None) -> Found:
    """The model's part of the data for a script of the small schedule.

    Raises:
        NoScriptError: the model cannot be loaded, or no script can express the processor's output.
        ModelError: the library cannot build it.
    """
    schedule, symptom, left_out = reduction.schedule, reduction.symptom, reduction.left_out
    subject, engine = _loaded(session, case), session.registry.engines[case.engine]
    family, library = subject.family, subject.library
    shapes, others = _shapes(subject, case)
    given = {r.request_id: library.processed(subject.model, r) for r in schedule.requests}
    requests = {request.request_id: request for request in schedule.requests}

    def join() -> Together:
        return engine.joined(subject.model, schedule.requests)

    return Found(
        case=case,
        library=library.name,
        schedule=schedule,
        symptom=symptom,
        steps=last_step(schedule) + min(step_bound(schedule), 200),
        text=f"{entry.why} See {entry.at}." if entry is not None else f"{symptom.what}.",
        place=f"See {entry.at}." if entry is not None else f"{symptom.verdict}.",
        config=_completed(library, minimal_config(family.config, left_out)),
        vocab=family.vocab_size,
        recipe=family.facts.weights,
        shapes=shapes,
        seed=family.facts.seed + case.seed,
        packed=bool(others & {"U8", "U16", "U32"}),
        integers=bool(others),
        follows=_following(subject, schedule),
        model_file=_needed_file(library, family),
        processed=given,
        joined=joined_of(join, requests, given, str(case)),
        # The engine that repeats the single stream does only the single stream's work.
        whole=symptom.kind.batch and not getattr(subject.model, "takes_pieces", True),
        left_out=left_out,
        driven=engine.repro_calls(),
        experts=needed_by(library.decoder(subject.model), case.dtype),
    )


def with_plain_config(session: Session, found: Found) -> Found:
    """``found`` without the config's fields that are the library's defaults; takes some seconds."""
    subject = session.subject(found.case)
    paths = defaults(subject.library, subject.family)
    config = _completed(subject.library, minimal_config(subject.family.config, paths))
    return dataclasses.replace(found, config=config, left_out=paths)


def _completed(library: Library, config: dict[str, Any]) -> dict[str, Any]:
    """The config with the towers that ``mlx_vlm.utils.load_model`` adds."""
    if library.name != "mlx_vlm":
        return config
    text = {"text_config": config.pop("llm_config", {}), "vision_config": {}, "audio_config": {}}
    return config | {name: made for name, made in text.items() if name not in config}


def _following(subject: Subject, schedule: Schedule) -> dict[str, str]:
    """The request that each continued request continues: its answer depends on the weights."""
    if schedule.options.prefix_caching is None or schedule.options.kv is not None:
        return {}
    answers = {
        r.request_id: r.prompt + subject.oracle.solo(r, schedule.options, schedule).tokens
        for r in schedule.requests
        if not r.media and len(schedule.requests) > 1
    }
    return {
        request.request_id: name
        for request in schedule.requests
        for name, whole in answers.items()
        if request.prompt == whole
    }


def _needed_file(library: Library, family: Family) -> str:
    """The family's Python file, unless the library's own class has the same parameters."""
    name = family.facts.model_file or ""
    bare = msgspec.structs.replace(
        family, facts=msgspec.structs.replace(family.facts, model_file=None)
    )
    try:
        same = not name or library.outline(bare).parameters == library.outline(family).parameters
    except ConformanceError:
        same = False
    return "" if same else name


def _shapes(subject: Subject, case: CaseId) -> tuple[dict[str, Shape], set[str]]:
    """The shapes of all floating parameters, and the safetensors types of the others.

    Both are read from the checkpoint that the library's plugin writes.
    """
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        subject.library.write(subject.family, Path(folder), dtype=case.dtype, seed=case.seed)
        file = Path(folder) / "model.safetensors"
        if not file.is_file():
            raise ModelError(f"{case}: the plugin of {subject.library.name} writes no safetensors")
        tensors = read_header(file)
    strip = subject.family.facts.strip
    shapes = {strip + p: tensor.shape for p, tensor in tensors.items() if tensor.dtype in _FLOATING}
    return shapes, {tensor.dtype for tensor in tensors.values()} - _FLOATING


# Compares the processor's output for several prompts in one call with its output for each ---------

Together = Sequence[tuple[tuple[str, ...], Mapping[str, Any]]]


def joined_of(
    join: Callable[[], Together],
    requests: Mapping[str, Request],
    separate: Mapping[str, Mapping[str, Any]],
    case: str,
) -> tuple[Joined, ...]:
    """How to build the processor's joint output for several prompts from its output for each.

    Args:
        join: calls the processor.
        separate: for each request the processor's outputs except the ids.

    Raises:
        NoScriptError: the processor fails, or its joint output is not the concatenation.
    """
    try:
        groups = join()
    except Exception as error:
        message = f"the processor fails itself, {type(error).__name__}: {error}"
        raise NoScriptError(f"{case}: {message}", Reason.PROCESSOR) from error
    found = []
    for names, made in groups:
        ids, mask = made["input_ids"], made["attention_mask"]
        rows = [tuple(row[seen > 0].tolist()) for row, seen in zip(ids, mask, strict=True)]
        if rows != [requests[name].prompt for name in names]:
            message = "the processor makes other ids of several prompts than of each"
            raise NoScriptError(f"{case}: {message}", Reason.PROCESSOR)
        given = {k: v for k, v in made.items() if k not in ("input_ids", "attention_mask")}
        parts = [separate[name] for name in names]
        padded = [k for k, v in given.items() if isinstance(v, np.ndarray) and v.shape == ids.shape]
        for name, value in given.items():
            width = ids.shape[1] if name in padded else 0
            if not _same(value, [part[name] for part in parts if name in part], width):
                message = f"the processor makes other {name} of several prompts than of each"
                raise NoScriptError(f"{case}: {message}", Reason.PROCESSOR)
        pad = int(ids[mask == 0][0]) if (mask == 0).any() else 0
        right = bool((mask[:, 0] > 0).all() and (mask == 0).any())
        found.append(Joined(names, pad, right, tuple(given), tuple(padded)))
    return tuple(found)


def _same(value: Any, parts: list[Any], width: int) -> bool:
    if isinstance(value, np.ndarray) and all(isinstance(part, np.ndarray) for part in parts):
        if width:
            parts = [np.pad(p, ((0, 0), (width - p.shape[1], 0))) for p in parts]
        try:
            whole = np.concatenate(parts)
        except ValueError:
            return False
        return whole.shape == value.shape and bool((whole == value).all())
    return False


Observed = tuple[Symptom, Schedule]

# Scripts show no memory of these.
_NOT_SHOWN = (None, Weigh.CYCLES, Weigh.IDLE)
_NOT_WRONG = frozenset({Verdict.EXACT, Verdict.TIE, Verdict.VACUOUS, Verdict.UNSUPPORTED})


def observe(
    subject: Subject, engine: type[Engine], scenario: Scenario, schedule: Schedule
) -> Observed | None:
    """How the schedule fails, and the schedule with step numbers; ``None`` if it does not fail.

    The schedule is run once and the engine chooses all tokens, as in a script.
    """
    try:
        if scenario.oracle_only:
            return _single_stream(subject, schedule)
        played = play_schedule(subject, engine, schedule, once=True, enough=lambda _: True)
    except ConformanceError:
        return None
    except Exception as error:  # noqa: BLE001 - the library's failure is the result
        failure = failure_of(error, "decoding one request alone")
        return (
            None
            if failure.unsupported
            else (_crash(failure, Kind(batch=False, crash=True)), schedule)
        )
    return _together(played)


def _together(played: Play) -> Observed | None:
    (trace,) = played.traces
    findings = [f for check in CHECKS for f in check(played) if f.verdict not in _NOT_WRONG]
    if not findings:
        return None
    in_steps = by_steps(played.schedule, trace)
    worst = max(findings, key=lambda f: (f.verdict.severity, f.check == "probe"))
    if trace.failure is not None:
        return _crash(trace.failure, Kind(crash=True)), in_steps
    if worst.check == "probe":
        return Symptom(worst.verdict, Kind(called=True), worst.what, mark="probe"), in_steps
    if worst.check == "leak" and played.schedule.weigh not in _NOT_SHOWN:
        kind = Kind(weighed=str(played.schedule.weigh))
        return Symptom(worst.verdict, kind, worst.what, mark="leak"), in_steps
    kind = Kind(policy=worst.verdict is Verdict.POLICY)
    difference, noise = _figures(played)
    if kind.policy:
        difference, noise = worst.difference or 0.0, worst.noise or noise
    return Symptom(worst.verdict, kind, worst.what, difference, noise, _mark(worst)), in_steps


def _mark(finding: Finding) -> str:
    """The name of the check for findings that are not about numbers; empty for the others."""
    numbers = finding.check in ("forced", "free", "nonfinite", "policy", "twins", "stability")
    return "" if numbers else finding.check


def _figures(played: Play) -> tuple[float, float]:
    """The largest difference over all requests, and its noise, in nats."""
    found = [(0.0, 1e-6)]
    for request in played.schedule.requests:
        measured = measure(played, played.traces[0], request.request_id)
        if measured is not None:
            deviation, noise = measured
            step = int(deviation.difference.argmax())
            found.append((float(deviation.difference[step]), float(noise.full[step])))
    return max(found)


def _single_stream(subject: Subject, schedule: Schedule) -> Observed | None:
    outcome = judge_oracle(subject, [schedule])
    wanted = {request.request_id: request.max_tokens for request in schedule.requests}
    findings = [
        f
        for f in outcome.findings
        # The oracle keeps longer answers to the same prompt, which a script lacks.
        if f.verdict is Verdict.ORACLE and (f.step or 0) < wanted[f.request_id or ""]
    ]
    if not findings:
        return None
    worst = max(findings, key=lambda finding: finding.difference or 0.0)
    kind = Kind(batch=False, oracle="stateless" if worst.check == "stateless" else "pieces")
    figures = worst.difference or 0.0, worst.noise or 1e-6
    return Symptom(worst.verdict, kind, worst.what, *figures), schedule


def _crash(failure: Failure, kind: Kind) -> Symptom:
    place = Path(failure.frame.partition(":")[0]).name
    mark = f"{failure.type_name} {place}"
    return Symptom(Verdict.CRASH, kind, str(failure), mark=mark)


# These are always kept: they define the model.
_KEPT = frozenset({"model_type", "text_config", "vision_config", "audio_config"})


def defaults(library: Library, family: Family) -> tuple[FieldPath, ...]:
    """The fields of the family's config that do not change the model's outline.

    The outline has every setting, so a model without these fields computes the same.
    """
    paths = list(_paths(family.config))
    try:
        whole = library.outline(family)
    except ConformanceError:
        return ()

    def same(kept: Sequence[FieldPath]) -> bool:
        config = minimal_config(family.config, (path for path in paths if path not in kept))
        return _same_value(library, msgspec.structs.replace(family, config=config), whole)

    needed = fewest(paths, same, at_once=1)
    return tuple(path for path in paths if path not in needed)


def minimal_config(config: Mapping[str, Any], paths: Iterable[FieldPath]) -> dict[str, Any]:
    """The config without those fields."""
    return reduce(_without, paths, dict(config))


def _same_value(library: Library, family: Family, whole: Outline) -> bool:
    try:
        found = library.outline(family)
    except Exception:  # noqa: BLE001 - whatever it raises, the field is needed
        return False
    return found == whole and _texts(found) == _texts(whole)


def _texts(outline: Outline) -> list[str]:
    """The settings as text: 1, 1.0 and True differ for some libraries."""
    return [repr(sorted(settings.items(), key=str)) for settings in outline.settings]


def _paths(config: Mapping[str, Any], above: FieldPath = ()) -> Iterator[FieldPath]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _paths(value, (*above, name))
        if name not in _KEPT:
            yield (*above, name)


def _without(config: dict[str, Any], path: FieldPath) -> dict[str, Any]:
    first, *rest = path
    if not rest:
        return {name: value for name, value in config.items() if name != first}
    if not isinstance(config.get(first), dict):
        return config
    return {**config, first: _without(config[first], tuple(rest))}
