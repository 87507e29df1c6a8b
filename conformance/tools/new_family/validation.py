"""Validates a new family: calibrates its weights, runs the ladder, finds the inputs that matter.

Defects in inputs that do not matter to a family go unnoticed in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conformance.backend.batch_inputs import INPUTS, Seen, altered
from conformance.checks.expectations import load_expectations
from conformance.core.errors import AdoptionError, FamilyError, ModelError, Unsupported
from conformance.core.family import Family, load_family
from conformance.core.library import Library
from conformance.core.sensitivity import Sensitivity
from conformance.core.verdict import CaseId, CaseResult
from conformance.run.case_judge import CaseJudge
from conformance.run.registry import build_registry
from conformance.run.session import Session
from conformance.run.tiers import COSTLY
from conformance.scenarios.workloads import is_workload
from conformance.tools.new_family.making import make
from conformance.tools.new_family.report import MOST_SHOWN, Adopted, BatchInput
from conformance.tools.new_family.source import Source

SMOKE = ("repeat", "batch_of_one")
"""The rungs that only show whether the family works at all."""


def adopt(source: Source, folder: Path, *, library: str | None, ladder: bool) -> Adopted:
    """Make, calibrate and run a family of the source; its file is in ``folder``.

    Args:
        library: the name of the library to build it with; by default the first that can.
        ladder: run the whole ladder, not only the rungs of ``SMOKE``.

    Raises:
        AdoptionError: it can't be built or calibrated; one sentence.
    """
    registry = build_registry()
    path = folder / f"{source.name}.json"
    try:
        made = make(source, registry, folder, library=library)
        measured, problem = _calibrated(made.library, load_family(path))
        registry = build_registry(family_files=[path])
        family = load_family(path)
    except FamilyError as error:
        reason = str(error).replace(f"{path}: ", "")
        raise AdoptionError(f"{source.path}: made small: {reason}") from error
    session = Session(registry)
    results, left_out = _ladder_results(session, family, ladder=ladder)
    return Adopted(
        name=family.name,
        source=str(source.path),
        library=made.library.name,
        module=family.module,
        caches=made.description.caches,
        positions=made.description.positions,
        states=made.description.states,
        kinds={place: len(kinds) for place, kinds in sorted(made.full.kinds.items())},
        lost={place: sorted(kinds) for place, kinds in sorted(made.lost.items())},
        parameters=(sum(made.full.parameters.values()), sum(made.tiny.parameters.values())),
        decisions=made.decisions,
        unshrunk=made.unshrunk,
        notes=made.notes,
        ratio=measured.ratio if measured else None,
        weakest=f"{measured.weakest.kind} {measured.weakest.where}"
        if measured and measured.signals
        else "",
        insensitive=problem
        or ("" if measured is None or measured.sensitive else "too insensitive to prove anything"),
        inputs=measure_inputs(session, results) if ladder else (),
        results=results,
        left_out=left_out,
    )


def _calibrated(library: Library, family: Family) -> tuple[Sensitivity | None, str]:
    """Calibrate the family and write the recipe; its sensitivity, or why it can't be measured."""
    try:
        library.calibrate(family)
        better = load_family(Path(family.path))
        return library.sensitivity(better, dtype="float32", seed=0), ""
    except Unsupported:
        return None, ""
    except ModelError as error:
        return None, f"could not be measured: {error}"


def _ladder_results(
    session: Session, family: Family, *, ladder: bool
) -> tuple[tuple[CaseResult, ...], tuple[str, ...]]:
    """The results of the rungs that apply, compared with the expectations, and those left out.

    A workload mixes what the rungs below it add, so it is left out where one of them fails. The
    failures that a reader sees in full are compared with other engines.
    """
    registry = session.registry
    known = load_expectations(None, registry.expectations)
    judge = CaseJudge(session, known, like_module=True, needs=False)  # it climbs the whole ladder
    engines = [e for e in registry.engines.values() if e.library == family.facts.library]
    main = [engine for engine in engines if engine.name == family.facts.library] or engines[:1]
    rungs = [
        CaseId(engine.name, family.name, scenario.name, "float32", 0)
        for engine in main
        for scenario in registry.scenarios_for(engine, family)
        if scenario.name in SMOKE or (ladder and scenario.name not in COSTLY)
    ]
    results: list[CaseResult] = []
    left_out: list[str] = []
    failed = 0
    for case in rungs:
        if failed and is_workload(case.scenario):
            left_out.append(case.scenario)
            continue
        result = judge.judged(case, session.run(case))
        failed += not result.expected
        results.append(judge.diagnosed(case, result) if failed <= MOST_SHOWN else result)
    return tuple(results), tuple(left_out)


def measure_inputs(session: Session, results: Sequence[CaseResult]) -> tuple[BatchInput, ...]:
    """Measure each input: change it in the good cases among these results and rerun them."""
    scenarios = session.registry.scenarios
    good = [r for r in results if r.verdict.good and not scenarios[r.scenario].oracle_only]
    return tuple(_measured(session, name, good) for name in INPUTS) if good else ()


def _measured(session: Session, name: str, results: Sequence[CaseResult]) -> BatchInput:
    given, read = False, 0
    for result in results:
        seen = Seen()
        noticed = _noticed(session, CaseId.parse(result.case), name, seen)
        given, read = given or seen.given > 0, read + (seen.changed > 0)
        if seen.changed and noticed:
            return BatchInput(name, result.scenario, read=read)
        if seen.calls and not given:
            break  # other rungs have the same kinds of caches
    return BatchInput(name, given=given, read=read)


def _noticed(session: Session, case: CaseId, name: str, seen: Seen) -> bool:
    """Whether a check reports a finding in the case with the input changed."""
    subject = session.subject(case)
    decoder = subject.library.decoder(subject.model)
    result = session.run(
        case,
        around=lambda _: altered(decoder, name, seen),
        until=lambda found: any(not f.verdict.good for f in found),
    )
    return not result.verdict.good
