"""Reads the files of a folder of expectations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from conformance.checks.expectations.entries import NUMERIC, STRAY, Defect, Refusal
from conformance.checks.expectations.entry_tables import tables, version_problem
from conformance.checks.expectations.lock import Locked, lock_file, read_lock
from conformance.checks.expectations.rules import Expectations
from conformance.checks.expectations.same_code import followed, recorded_functions
from conformance.core.errors import ExpectationError
from conformance.core.library_source import versions_of
from conformance.core.user_files import parse_toml, read_bytes, read_text, typed_json
from conformance.core.verdict import Verdict

# In a clone, a link to the top-level folder; in an installed package, a copy of it.
OWN = Path(__file__).parent / "known"

SHOWN = "releases.json"
"""The file in that folder with the releases in which ``conformance known refresh`` saw entries."""

_NO_DEFECT = frozenset({Verdict.EXACT, Verdict.TIE, Verdict.UNSUPPORTED, Verdict.VACUOUS})

_NOT_OF_FILES = ("functions", "unchanged_in", "changed_in", "hidden_in", "also_in")


def load_expectations(folder: Path | None = None, also: Sequence[Path] = ()) -> Expectations:
    """The entries of all ``*.toml`` in a folder; default: the project's own ``expectations/``.

    Args:
        also: folders of plugins, whose entries may refer to entries of the first folder.

    Raises:
        ExpectationError: a folder or file is invalid; the message names file, entry and field.
    """
    folder = OWN if folder is None else folder
    if not folder.is_dir():
        raise ExpectationError(f"{folder}: there is no such folder of expectations")
    folders = (folder, *also)
    files = [_load_file(path) for each in folders for path in sorted(each.glob("*.toml"))]
    defects = [entry for file in files for entry in file.defects]
    recorded = {k: digests for each in folders for k, digests in recorded_functions(each).items()}
    seen = {name: also for each in folders for name, also in _releases(each).items()}
    defects = [msgspec.structs.replace(e, also_in=seen.get(e.id, ())) for e in defects]
    found = Expectations(
        followed(defects, recorded),
        tuple(entry for file in files for entry in file.refusals),
    )
    ids = [e.id for e in found.defects] + [r.id for r in found.refusals]
    for name, count in Counter(ids).items():
        if count > 1:
            raise ExpectationError(f"{folder}: entry {name!r}: field 'id' is used {count} times")
    own = {entry.id for entry in found.defects if not entry.script}
    for entry in found.defects:
        if entry.script and not entry.by_hand and entry.script not in own:
            raise ExpectationError(
                f"{folder}: entry {entry.id!r}: field 'script' must name a file that ends in .py, "
                f"or an entry without that field; {entry.script!r} is neither"
            )
    return Expectations(
        _with_hidden(folder, found.defects), found.refusals, _locked(folders, found.defects)
    )


def _locked(folders: Sequence[Path], entries: Iterable[Defect]) -> tuple[Locked, ...]:
    """The lock files of the installed releases; a checkout has none."""
    installed = {package: versions_of(package) for package in {e.package for e in entries}}
    return tuple(
        line
        for folder in folders
        for package, found in sorted(installed.items())
        if package in found and f"{package} source" not in found
        for line in read_lock(lock_file(folder, package, found[package]))
    )


def shown_in(folder: Path) -> dict[str, dict[str, list[str]]]:
    """The ids of entries by library and release, as the folder's file records them.

    Raises:
        ExpectationError: the file is malformed.
    """
    path = folder / SHOWN
    if not path.is_file():
        return {}
    data = read_bytes(path, ExpectationError)
    return typed_json(data, dict[str, dict[str, list[str]]], str(path), ExpectationError)


def _releases(folder: Path) -> dict[str, tuple[str, ...]]:
    """The recorded releases by entry."""
    found: dict[str, tuple[str, ...]] = {}
    for releases in shown_in(folder).values():
        for version, names in releases.items():
            found |= {name: (*found.get(name, ()), version) for name in names}
    return found


def _with_hidden(folder: Path, entries: Sequence[Defect]) -> tuple[Defect, ...]:
    """The entries, each with the families of the entries in ``behind``."""
    # Which families have a trait is unknown here.
    families = {entry.id: ("*",) if entry.traits else entry.families for entry in entries}
    named = {name for entry in entries for name in entry.behind}
    for entry in entries:
        if unknown := set(entry.behind) - set(families):
            raise ExpectationError(
                f"{folder}: entry {entry.id!r}: field 'behind' names no entry: {min(unknown)!r}"
            )
        if not entry.verdicts and not entry.other_seeds and entry.id not in named:
            raise ExpectationError(
                f"{folder}: entry {entry.id!r}: fields 'verdicts' and 'other_seeds' are empty, and "
                "it is in the field 'behind' of no other entry"
            )
    return tuple(
        msgspec.structs.replace(e, hidden_in={name: families[name] for name in e.behind})
        for e in entries
    )


def _load_file(path: Path) -> Expectations:
    return _parsed(path, read_text(path, ExpectationError))


@lru_cache(maxsize=64)  # to parse the project's own takes a second, and each registry has them
def _parsed(path: Path, text: str) -> Expectations:
    content = parse_toml(text, str(path), ExpectationError)
    for name in content:
        if name not in ("package", "defect", "unsupported"):
            raise ExpectationError(f"{path}: unknown field {name!r}")
    if not (content.get("package") and isinstance(content["package"], str)):
        raise ExpectationError(
            f"{path}: field 'package' must name the package that the entries' 'versions' are about"
        )
    common = {"engines": [path.stem], "package": content["package"]}
    return Expectations(
        tables(path, content, "defect", Defect, problem=_defect_problem, common=common),
        tables(path, content, "unsupported", Refusal, problem=_refusal_problem, common=common),
    )


def _defect_problem(entry: Defect) -> str:
    """The problem with the entry; empty if none."""
    if wrong := _empty(entry, "id package families dtypes versions where why") or _extra(entry):
        return wrong
    for scenario in entry.verdicts:
        wanted = entry.wanted(scenario)
        if bad := next((v.value for v in wanted if v in _NO_DEFECT), "" if wanted else "nothing"):
            return f"field 'verdicts.{scenario}': {bad!r} is not a verdict of a defect"
        if len(wanted) > 1 and not _may_be_listed(set(wanted), entry):
            return (
                f"field 'verdicts.{scenario}': a list may hold drift, diverged and nan, with "
                "unstable, for uninitialized memory, also crash, and with by_time or of a server "
                "also protocol"
            )
    for scenario, names in entry.schedules.items():
        if scenario not in entry.verdicts or not names:
            return f"field 'schedules.{scenario}' is empty, or 'verdicts' lacks that scenario"
    return version_problem(entry)


def _extra(entry: Defect) -> str:
    found = [name for name in _NOT_OF_FILES if getattr(entry, name)]
    if found:
        return f"field {found[0]!r} is none of a file"
    if entry.suffers and not entry.suffers.endswith("."):
        return "field 'suffers' must be a sentence that ends with a full stop"
    twice = sorted(set(entry.other_seeds) & set(entry.verdicts))
    return f"field 'other_seeds': {twice[0]!r} is in 'verdicts', for all seeds" if twice else ""


def _may_be_listed(wanted: set[Verdict], entry: Defect) -> bool:
    # The timing changes which answer is wrong: the requested one, or a repetition of it. What a
    # server says wrongly may be a logprob or a token.
    numeric = wanted - {Verdict.PROTOCOL} if entry.by_time or entry.of_servers else wanted
    return numeric <= NUMERIC or (Verdict.UNSTABLE in wanted and wanted <= STRAY)


def _refusal_problem(entry: Refusal) -> str:
    return _empty(entry, "id families scenarios dtypes text why")


def _empty(entry: msgspec.Struct, fields: str) -> str:
    return next((f"field {f!r} is empty" for f in fields.split() if not getattr(entry, f)), "")
