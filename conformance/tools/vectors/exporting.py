"""Writes vectors: each family's checkpoint, schedules, and goldens."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from conformance.core import numerics
from conformance.core.engine import Engine
from conformance.core.errors import GoldenError, ModelError, VectorsError
from conformance.core.failures import failure_of
from conformance.core.family import Family
from conformance.core.grouping import grouped
from conformance.core.numerics import TOP
from conformance.core.schedule import Arrival, Request, Schedule, triggers, validate
from conformance.core.token_choice import Processor, Sampler
from conformance.core.verdict import CaseId
from conformance.reference.noise import THOROUGH_RUNS
from conformance.reference.oracle import Oracle
from conformance.reference.subject import Subject
from conformance.run.judging.judge import brief_for
from conformance.run.session import Session
from conformance.scenarios import Scenario
from conformance.tools.golden.format import Golden, Provenance, Recorded, parse_golden, to_text
from conformance.tools.vectors.reading import (
    FORMAT,
    GOLDEN,
    MANIFEST,
    MODEL,
    Exported,
    FamilyVectors,
    LeftOut,
    Manifest,
    ScenarioFile,
    sealed,
)

Report = Callable[[str], object]


def export(
    session: Session, cases: Sequence[CaseId], folder: Path, *, report: Report = lambda _: None
) -> Manifest:
    """Write the vectors of ``cases``, which share one engine, dtype and seed, to a new folder.

    The folder appears complete or not at all. The manifest names everything that was left out.

    Args:
        report: called with a sentence for each finished family.

    Raises:
        VectorsError: the folder exists already or cannot be written, or nothing can be exported.
    """
    check_new(folder)
    try:
        parent = folder.absolute().parent
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=parent))
        try:
            manifest = _fill(session, cases, made, report)
            made.chmod(0o755)  # temporary folders are private
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    except OSError as error:
        raise VectorsError(f"{folder}: cannot write the vectors: {error}") from error
    return manifest


def check_new(folder: Path) -> None:
    """Check that the folder does not exist.

    Raises:
        VectorsError: the folder exists.
    """
    if folder.exists():
        raise VectorsError(f"{folder} exists already: name a new folder")


def _fill(session: Session, cases: Sequence[CaseId], folder: Path, report: Report) -> Manifest:
    by_family = grouped(cases, lambda case: case.family)
    done: dict[str, FamilyVectors] = {}
    refused: dict[str, str] = {}
    for name, mine in by_family.items():
        try:
            done[name] = _export_family(session, mine, folder)
        except (ModelError, VectorsError) as error:
            refused[name] = str(error)
            shutil.rmtree(folder / name, ignore_errors=True)
        left = f"left out: {refused[name]}" if name in refused else _counted(done[name])
        report(f"{name}: {left}")
    if not done:
        raise VectorsError(f"nothing can be exported: {next(iter(refused.values()))}")
    first = cases[0]
    engine = session.registry.engines[first.engine]
    library = session.registry.libraries[engine.library]
    manifest = sealed(
        Manifest(
            format=FORMAT,
            library=engine.library,
            engine=first.engine,
            dtype=first.dtype,
            seed=first.seed,
            versions=library.versions(),
            device=library.device(),
            families=done,
            families_left_out=refused,
            digest="",
        )
    )
    text = json.dumps(msgspec.to_builtins(manifest), indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
    return manifest


def _export_family(session: Session, cases: Sequence[CaseId], folder: Path) -> FamilyVectors:
    """All files of one family."""
    first = cases[0]
    registry = session.registry
    subject, engine = session.subject(first), registry.engines[first.engine]
    place = folder / first.family
    (place / MODEL).mkdir(parents=True)
    subject.library.write(subject.family, place / MODEL, dtype=first.dtype, seed=first.seed)
    recorder = Recorder(subject.oracle, TOP)
    scenarios: list[str] = []
    left_out: list[LeftOut] = []
    for case in cases:
        scenario = registry.scenarios[case.scenario]
        exported, left = _schedules(subject, engine, scenario, recorder, case.seed)
        left_out += left
        if exported:
            _write_scenario(place, scenario, exported)
            scenarios.append(scenario.name)
    if not scenarios:
        raise VectorsError(f"{first.family}: {left_out[0].reason}")
    _write_golden(place, subject, recorder, first)
    files = sorted(path for path in place.rglob("*") if path.is_file())
    return FamilyVectors(
        vocab_size=subject.family.vocab_size,
        scenarios=tuple(scenarios),
        left_out=tuple(left_out),
        files={
            path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        },
    )


def _schedules(
    subject: Subject, engine: type[Engine], scenario: Scenario, recorder: Recorder, seed: int
) -> tuple[list[Exported], list[LeftOut]]:
    if scenario.oracle_only:
        return [], [LeftOut(scenario.name, "it holds the single stream against itself")]
    exported: list[Exported] = []
    left_out: list[LeftOut] = []
    try:
        made = scenario.make(brief_for(subject, engine, seed))
    except Exception as error:  # noqa: BLE001 - the library's failure is the reason
        failure = failure_of(error, "decoding one request alone")
        return [], [LeftOut(scenario.name, f"the single stream raised {failure}")]
    for schedule in made:
        rest, left = portable(schedule, scenario.name)
        left_out += left
        if rest is None:
            continue
        try:
            exported.append(Exported(validate(rest), recorder.record(rest, scenario.name)))
        except GoldenError as error:
            left_out.append(LeftOut(scenario.name, str(error), schedule=schedule.name))
        except Exception as error:  # noqa: BLE001 - the library's failure is the reason
            failure = failure_of(error, "decoding one request alone")
            reason = f"the single stream raised {failure}"
            left_out.append(LeftOut(scenario.name, reason, schedule=schedule.name))
    return exported, left_out


def _write_scenario(place: Path, scenario: Scenario, exported: Iterable[Exported]) -> None:
    """Write one line for each schedule."""
    file = ScenarioFile(scenario.name, scenario.summary, tuple(exported))
    lines = ",\n".join("  " + msgspec.json.encode(item).decode() for item in file.schedules)
    head = f' "scenario": {json.dumps(file.scenario)},\n "summary": {json.dumps(file.summary)}'
    text = f'{{\n{head},\n "schedules": [\n{lines}\n ]\n}}\n'
    path = place / f"{scenario.name}.json"
    path.write_text(text, encoding="utf-8")
    assert msgspec.json.decode(text, type=ScenarioFile) == file, "what is written can be read"


def _write_golden(place: Path, subject: Subject, recorder: Recorder, case: CaseId) -> None:
    library = subject.library
    golden = Golden(
        library.name,
        case.family,
        case.dtype,
        case.seed,
        Provenance(
            recipe=_recipe(subject.family),
            weights=library.fingerprint(subject.model),
            versions=library.versions(),
            device=library.device(),
            oracle=f"single stream; {recorder.checked} of {len(recorder.recorded)} requests held "
            "against the pass without a cache",
        ),
        tuple(recorder.recorded.values()),
    )
    text = to_text(golden)
    parse_golden(text, path=str(place / GOLDEN))  # checks that the written text can be read
    (place / GOLDEN).write_text(text, encoding="utf-8")


def _recipe(family: Family) -> str:
    """SHA-256 of all that determines the model and its prompts, without the path of its file."""
    plain = msgspec.structs.replace(family, path="")
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()


def _counted(family: FamilyVectors) -> str:
    left = len(family.left_out)
    return f"{len(family.scenarios)} scenarios" + (f", {left} things left out" if left else "")


# Goldens of exported schedules: each distinct request's single stream, once -----------------------


class Recorder:
    """Records requests of one family; equal ones with the same prefill chunking share a golden.

    Attributes:
        recorded: all recorded streams, by golden id.
        checked: how many of them were compared with the pass without a cache.
    """

    def __init__(self, oracle: Oracle, top: int) -> None:
        self._oracle = oracle
        self._top = top
        self._ids: dict[Any, str] = {}
        self.recorded: dict[str, Recorded] = {}
        self.checked = 0

    def record(self, schedule: Schedule, scenario: str) -> dict[str, str]:
        """The golden id of each request of a schedule; new requests are decoded as single streams.

        Raises:
            GoldenError: a logprob of a single stream is not finite, or the single stream disagrees
                with the pass without a cache: the oracle is not reliable.
        """
        ids: dict[str, str] = {}
        keys: dict[Any, str] = {}
        new: dict[str, Recorded] = {}
        for request in schedule.requests:
            key = self._key(request, schedule)
            name = self._ids.get(key) or keys.get(key)
            if name is None:
                name = f"{scenario}/{schedule.name}/{request.request_id}"
                new[name] = self._recorded(request, schedule, name, ids)
                keys[key] = name
            ids[request.request_id] = name
        self._ids |= keys
        self.recorded |= new
        return ids

    def _recorded(
        self, request: Request, schedule: Schedule, name: str, ids: dict[str, str]
    ) -> Recorded:
        options = schedule.options
        stream = self._oracle.solo(request, options, schedule)
        assert stream.logprobs is not None
        steps = len(stream.tokens)
        top = [self._most_likely(row) for row in stream.logprobs]
        if any(len(step) < 2 for step in top):
            raise GoldenError(f"{name}: the single stream's logprobs are not finite")
        check = self._oracle.check_stateless(request, options)
        if check is not None and not check.deviation.within_noise:
            raise GoldenError(f"{name}: the single stream disagrees with the pass without a cache")
        self.checked += check is not None
        # From many runs: no model is available to measure more when a trace is judged.
        noise = self._oracle.envelope(request, options, schedule, runs=THOROUGH_RUNS)
        source = request.continues
        if source is not None:
            source = msgspec.structs.replace(source, request_id=ids[source.request_id])
        return Recorded(
            msgspec.structs.replace(request, request_id=name, continues=source),
            stream.tokens,
            tuple(_floats(numerics.margins(stream.logprobs))),
            tuple(_floats(noise.top[:steps])),
            tuple(top),
        )

    def _most_likely(self, row: np.ndarray) -> tuple[tuple[int, float], ...]:
        """Finite logprobs of the most likely tokens, the best first; none if one is NaN."""
        if np.isnan(row).any():
            return ()
        order = np.argsort(-row, kind="stable")[: self._top]
        pairs = zip(order.tolist(), _floats(row[order]), strict=True)
        return tuple((token, value) for token, value in pairs if np.isfinite(value))

    def _key(self, request: Request, schedule: Schedule) -> Any:
        """A key that is equal for requests with the same single stream."""
        plain = msgspec.structs.replace(request, request_id="")
        if request.continues is not None:  # its history belongs to another request
            return (schedule.name, msgspec.json.encode(schedule), msgspec.json.encode(request))
        size = min(schedule.options.prefill_step_size, max(len(request.prompt) - 1, 1))
        return (msgspec.json.encode(plain), size)


def _floats(values: np.ndarray) -> list[float]:
    """The shortest decimals that parse to the same float32."""
    return [float(str(value)) for value in values.astype(np.float32)]


# The part of a schedule that means the same for every engine, and why the rest does not -----------

# Arguments of mlx-lm's processors that any engine can support: see docs/vectors.md.
_PLAIN_PROCESSORS = {
    "logit_bias",
    "repetition_penalty",
    "repetition_context_size",
    "presence_penalty",
    "presence_context_size",
    "frequency_penalty",
    "frequency_context_size",
}
_PLAIN_SAMPLERS = {"temp", "top_p", "min_p", "top_k"}


def portable(schedule: Schedule, scenario: str) -> tuple[Schedule | None, tuple[LeftOut, ...]]:
    """The part of a schedule that can be exported, and the parts left out.

    Requests that sample with a library's random numbers are left out. A schedule is left out as a
    whole if another request waits for one of them, or if it has options of one library.
    """

    def left(reason: str, request: str = "") -> LeftOut:
        return LeftOut(scenario, reason, schedule=schedule.name, request=request)

    if reason := _of_schedule(schedule):
        return None, (left(reason),)
    out = {r.request_id: why for r in schedule.requests if (why := _of_request(r))}
    found = tuple(left(why, name) for name, why in out.items())
    if not out:
        return schedule, ()
    rest = _without(schedule, out.keys())
    if not rest.arrivals:
        return None, found
    if needed := sorted(_needed(rest) & out.keys()):
        return None, (*found, left(f"others wait for {', '.join(needed)}, left out"))
    return rest, found


def _of_schedule(schedule: Schedule) -> str:
    """Why the whole schedule is specific to one library; empty if it is portable."""
    options, requests = schedule.options, schedule.requests
    reasons = {
        "quantized caches round as one library's kernels do": options.kv is not None,
        "the drafter is the engine's own": options.drafting is not None,
        "max_kv_size bounds caches in the library's own way": options.max_kv_size is not None,
        "the sampler and processors are the engine's own": options.sampler is not None
        or bool(options.processors),
        "invalid calls are of one engine's own interface": bool(schedule.probes),
        "it looks at the engine's memory": schedule.weigh is not None,
        "it counts what the work of this project's engines costs": bool(schedule.contracts),
        "media are made into inputs by the library's processor": any(r.media for r in requests),
        "a logits processor is this project's own": any(
            not _plain(processor) for request in requests for processor in request.processors
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _of_request(request: Request) -> str:
    if request.budget is not None:
        return "a thinking budget forces tokens by the library's own rule"
    if request.sampler is not None and not _greedy(request.sampler):
        return f"its sampler ({request.sampler.kind}) draws with the library's random numbers"
    return ""


def _greedy(sampler: Sampler) -> bool:
    """Whether the sampler always takes the most likely token."""
    args = sampler.args
    if sampler.kind != "library" or set(args) - _PLAIN_SAMPLERS:
        return False
    return not args.get("temp") or args.get("top_k") == 1


def _plain(processor: Processor) -> bool:
    return processor.kind == "library" and not set(processor.args) - _PLAIN_PROCESSORS


def _without(schedule: Schedule, names: Set[str]) -> Schedule:
    rest = [
        Arrival(kept, arrival.when)
        for arrival in schedule.arrivals
        if (kept := tuple(r for r in arrival.requests if r.request_id not in names))
    ]
    return msgspec.structs.replace(schedule, arrivals=tuple(rest))


def _needed(schedule: Schedule) -> set[str]:
    """The requests that a schedule mentions in addition to those that arrive."""
    waited = {when.request_id for when in triggers(schedule) if when.request_id is not None}
    sources = {r.continues.request_id for r in schedule.requests if r.continues is not None}
    return waited | sources | schedule.removed_ids
