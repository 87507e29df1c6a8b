"""Writes vectors: each family's checkpoint, schedules, and goldens."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from conformance.core.engine import Engine
from conformance.core.errors import GoldenError, ModelError, VectorsError
from conformance.core.failures import failure_of
from conformance.core.family import Family
from conformance.core.numerics import TOP
from conformance.core.schedule import validate
from conformance.core.verdict import CaseId
from conformance.reference.subject import Subject
from conformance.run.judging.judge import brief_for
from conformance.run.session import Session
from conformance.scenarios import Scenario
from conformance.tools.golden.format import Golden, Provenance, parse_golden, to_text
from conformance.tools.vectors.contents import (
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
from conformance.tools.vectors.portable import portable
from conformance.tools.vectors.single_streams import Recorder

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
    by_family: dict[str, list[CaseId]] = {}
    for case in cases:
        by_family.setdefault(case.family, []).append(case)
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
    """All files of one family.

    Raises:
        ModelError: the library cannot run it.
        VectorsError: none of its schedules is portable.
    """
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
