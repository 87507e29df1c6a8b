"""The script of a known defect, from an earlier result or by a search, and the issue about it."""

from __future__ import annotations

import importlib.metadata
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from conformance.checks.expectations import Defect
from conformance.checks.expectations.entries import matches
from conformance.checks.expectations.loading import OWN
from conformance.core.errors import ConformanceError, NoScriptError, ReproError
from conformance.core.mends import Mend
from conformance.core.user_files import typed_json
from conformance.core.verdict import CaseId, CaseResult
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.tools.repro.found import Reduction
from conformance.tools.repro.refusing import Reason
from conformance.tools.repro.script import fits
from conformance.tools.repro.search import Wanted, find, gathered, with_plain_config
from conformance.tools.repro.trying import Tried, shown_by, symptom_line

# How many cases of an entry are tried, and for how many seconds each is shrunk.
_CASES, _SECONDS = 3, 6.0
# After this many seconds no further case of an entry is begun.
_ENOUGH = 30.0


class KnownScript(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome for an entry: its ``script`` and the script's output, or why there is none.

    Attributes:
        reduction: data from which the script can be written without another search.
        group: the reason in words, shared by all entries with the same obstacle.
        version: the library's release that was tried; ``seconds``: the time it took.
    """

    entry: str
    case: str = ""
    schedule: str = ""
    requests: int = 0
    lines: int = 0
    said: str = ""
    reason: str = ""
    group: str = ""
    version: str = ""
    seconds: float = 0.0
    script: str = ""
    reduction: Reduction | None = None

    @property
    def shows(self) -> bool:
        """Whether a script was written, ran on its own and showed the defect."""
        return not self.reason


def ways(registry: Registry, entry: Defect) -> Iterator[CaseId]:
    """The entry's cases, engine by engine; within an engine, families with small configs first."""
    dtype = "float32" if matches("float32", entry.dtypes) else entry.dtypes[0]
    for engine in registry.engines.values():
        for family in sorted(registry.families_of(engine), key=lambda f: len(str(f.config))):
            if not entry.is_about(engine.name, family.name):
                continue
            able = {scenario.name for scenario in registry.scenarios_for(engine, family)}
            for scenario in entry.verdicts:
                if scenario in able:
                    yield CaseId(engine.name, family.name, scenario, dtype, 0)


def script_of(
    session: Session,
    entry: Defect,
    *,
    before: KnownScript | None = None,
    python: str = sys.executable,
    cases: int = _CASES,
) -> KnownScript:
    """The script of the result ``before``; else of the first of the entry's cases that yields one.

    Args:
        python: of the environment in which the scripts are run.
    """
    version = importlib.metadata.version(entry.package)
    begun = time.monotonic()
    made = _again(session, entry, before, python) or _tried(session, entry, version, python, cases)
    seconds = round(time.monotonic() - begun, 1)
    return msgspec.structs.replace(made, version=version, seconds=seconds)


def written(
    session: Session, entry: Defect, made: KnownScript, *, unittest: bool = False, python: str
) -> tuple[str, Tried]:
    """The script of an entry's ``Reduction``, and its outcome.

    Raises:
        NoScriptError: the script does not show the defect.
    """
    assert made.reduction is not None
    found = gathered(session, CaseId.parse(made.case), made.reduction, entry)
    return shown_by(found, python=python, unittest=unittest)


def _again(
    session: Session, entry: Defect, before: KnownScript | None, python: str
) -> KnownScript | None:
    if before is None or before.reduction is None:
        return None
    try:
        text, tried = written(session, entry, before, python=python)
    except ConformanceError:  # on another release a search may find another case
        return None
    return msgspec.structs.replace(
        before, lines=text.count("\n"), said=symptom_line(tried.output), script=text
    )


def killed(entry: Defect) -> KnownScript:
    """The outcome for an entry whose cases ended the process that ran them."""
    version = importlib.metadata.version(entry.package)
    words = "the process in which its cases were played crashed"
    return KnownScript(entry.id, reason=words, group=Reason.CRASHED, version=version)


def _tried(session: Session, entry: Defect, version: str, python: str, cases: int) -> KnownScript:
    if not entry.in_release(version):
        words = f"it is of other releases than {entry.package} {version}"
        return KnownScript(entry.id, reason=words, group=Reason.RELEASE)
    failed: list[ConformanceError] = []
    begun = time.monotonic()
    for case in _few(list(ways(session.registry, entry)), cases):
        if failed and time.monotonic() - begun > _ENOUGH:
            break
        try:
            return _made(session, case, entry, python)
        except ConformanceError as error:
            failed.append(error)
    return _none(entry, failed)


def _none(entry: Defect, failed: list[ConformanceError]) -> KnownScript:
    """Why there is no script: the reason of the first case that fails, if any case does."""
    if not failed:
        return KnownScript(entry.id, reason="no case of it is there", group=Reason.RELEASE)
    obstacles = [error for error in failed if isinstance(error, NoScriptError)]
    group = obstacles[0].reason if obstacles else Reason.GREEN
    return KnownScript(entry.id, reason=str((obstacles or failed)[0]), group=group)


def _few(found: list[CaseId], cases: int) -> list[CaseId]:
    """Cases of other scenarios first, then of other families, since these fail in other ways."""
    chosen: list[CaseId] = []
    for case in found:
        if case.scenario not in {c.scenario for c in chosen}:
            chosen.append(case)
    rest = [case for case in found if case not in chosen]
    return (chosen + rest)[:cases]


def _made(session: Session, case: CaseId, entry: Defect, python: str) -> KnownScript:
    wanted = Wanted(
        lenient=True,
        schedules=entry.schedules.get(case.scenario, ()),
        verdicts=entry.wanted(case.scenario),
        entry=entry,
    )
    found = find(session, case, wanted, seconds=_SECONDS)
    if not fits(found):  # slow: it takes as long as everything else
        found = with_plain_config(session, found)
    text, tried = shown_by(found, python=python)
    return KnownScript(
        entry=entry.id,
        case=str(case),
        schedule=found.schedule.name,
        requests=len(found.requests),
        lines=text.count("\n"),
        said=symptom_line(tried.output),
        script=text,
        reduction=found.reduction,
    )


TABLE = "table.jsonl"
"""The table's name in the scripts folder."""


def found_before(expectations: Path | None = None) -> dict[str, KnownScript]:
    """The table of ``scripts/`` in a folder of expectations, by default the project's own.

    Empty if there is no such table.

    Raises:
        ReproError: the table cannot be read.
    """
    return read_folder((OWN if expectations is None else expectations) / "scripts")


def read_folder(folder: Path) -> dict[str, KnownScript]:
    """The table of a folder, if there is one.

    Raises:
        ReproError: it cannot be read; says which line.
    """
    path = folder / TABLE
    if not path.is_file():
        return {}
    try:
        return read_table(path.read_bytes())
    except (OSError, ReproError) as error:
        raise ReproError(f"{path}: {error}") from error


def table_lines(made: Iterable[KnownScript]) -> Iterator[str]:
    """A line of JSON for each entry, without its script."""
    for item in made:
        yield msgspec.json.encode(msgspec.structs.replace(item, script="")).decode()


def read_table(text: bytes) -> dict[str, KnownScript]:
    """The results that ``table_lines`` wrote, by the entries' ids.

    Raises:
        ReproError: a line is invalid; says which.
    """
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"line {number} is not a line of its table"
        item = typed_json(line, KnownScript, where, ReproError)
        found[item.entry] = item
    return found


def tried_before(made: Mapping[str, KnownScript], entry: Defect) -> bool:
    """Whether the entry was tried with the installed release."""
    version = importlib.metadata.version(entry.package)
    return entry.id in made and made[entry.id].version == version


def without(made: Iterable[KnownScript]) -> dict[str, list[str]]:
    """The entries without a script, by their shared reason; the most frequent reason first."""
    groups: dict[str, list[str]] = {}
    for item in made:
        if not item.shows:
            groups.setdefault(item.group, []).append(item.entry)
    return dict(sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0])))


_TITLE = 100  # characters


@dataclass(frozen=True)
class Material:
    """The data an issue is written from.

    Attributes:
        entry: the known defect.
        script: shows it with only mlx and the library; ``said`` is the script's output.
        result: of one of its cases, as released and mended.
        mend: of the entry, if there is one.
    """

    entry: Defect
    script: str
    said: str
    result: CaseResult
    mend: Mend | None


def issue_text(found: Material) -> str:
    """The issue as Markdown, with only measured facts and the entry's own text."""
    entry, result = found.entry, found.result
    versions = ", ".join(f"{name} {text}" for name, text in result.versions.items())
    lines = [
        f"# {_sentence(entry.why)}",
        "",
        f"{versions}; {result.device}.",
        "",
        _seen(result),
        "",
        "```python",
        *found.script.rstrip().splitlines(),
        "```",
        "",
        "It prints:",
        "",
        "```text",
        *found.said.strip().splitlines(),
        "```",
        "",
        f"**Cause** ({_places(entry)}): {' '.join(entry.why.split())}",
        "",
        _effect(found),
    ]
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    """The first sentence without its full stop; only its first part if the sentence is long."""
    first = " ".join(text.split()).split(". ")[0].rstrip(".")
    return first if len(first) <= _TITLE else first.split("; ")[0].split(": ")[0]


def _seen(result: CaseResult) -> str:
    """The worst finding of the case, with its schedule."""
    bad = [f for f in result.evidence if not f.verdict.good and not f.mended]
    what = f": {bad[0].what}" if bad else ""
    return f"`{result.family}`, {result.scenario.replace('_', ' ')}: {result.verdict}{what}."


def _places(entry: Defect) -> str:
    return ", ".join(f"`{place.strip()}`" for place in entry.at.replace(" and ", ",").split(","))


def _effect(found: Material) -> str:
    result, mend = found.result, found.mend
    if mend is None:
        return "**Mend**: none was tried."
    if result.mended is None or not set(mend.defects) & set(result.mended.defects):
        return f"**Mend**: {mend.summary} It was not tried on this case."
    more = [name for name in result.mended.defects if name not in mend.defects]
    beside = f", beside the mends of {', '.join(more)}," if more else ""
    return f"**Mend**: {mend.summary} With it{beside} the case is {result.mended.verdict}."
