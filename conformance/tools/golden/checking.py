"""Checks goldens: first their files, then the numbers against today's library."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.checks.expectations import Expectations
from conformance.core.engine import Engine
from conformance.core.errors import ConformanceError, GoldenError
from conformance.core.family import Family
from conformance.core.grouping import grouped
from conformance.core.library import Library
from conformance.core.missing_library import loader_error, remedied
from conformance.core.output_files import PARTIAL
from conformance.core.unavailable import error_text
from conformance.reference.subject import Subject
from conformance.tools.golden.format import (
    Golden,
    golden_files,
    golden_path,
    load_golden,
    strangers,
)
from conformance.tools.golden.recipe import DTYPE, SEED, recipe_hash
from conformance.tools.golden.regression import Difference, differences, in_short
from conformance.tools.golden.staging import load_subject

_SHA256 = re.compile(r"[0-9a-f]{64}")

Names = tuple[str, str]


@dataclass(frozen=True)
class Checked:
    """The result of checking one golden.

    Attributes:
        problems: sentences; empty if everything holds.
        differences: from the output of today's library, including known defects.
        meaning: of all unknown differences together; empty if nothing was compared.
        not_playable: what this machine lacks, if nothing was compared for this reason.
    """

    library: str
    family: str
    problems: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    meaning: str = ""
    not_playable: str = ""

    @property
    def label(self) -> str:
        """The family's name in a report."""
        return f"{self.library}/{self.family}"

    @property
    def good(self) -> bool:
        """Whether everything holds except for known differences."""
        return not self.problems and not self.unknown

    @property
    def unknown(self) -> tuple[Difference, ...]:
        """The differences that no expectation explains."""
        return tuple(difference for difference in self.differences if not difference.known)

    @property
    def known(self) -> tuple[str, ...]:
        """The expectations that explain the others."""
        return tuple(sorted({name for found in self.differences for name in found.known}))

    def lines(self) -> list[str]:
        """The failures in words: problems, the meaning of the unknown differences, and the first.

        For each comparison of each batch, the first request is shown with the number of others.
        """
        lines = list(self.problems)
        lines += [f"{self.label}: {self.not_playable}"] if self.not_playable else []
        firsts = grouped(self.unknown, lambda found: (found.part, found.engine, found.schedule))
        if firsts:
            lines.append(f"{self.label}: {self.meaning}")
        for first, *more in firsts.values():
            rest = f"; and {len(more)} more requests" if more else ""
            lines.append(f"    {first}{rest}")
        return lines


def folder_problems(
    root: Path,
    families: Mapping[Names, Family],
    libraries: Collection[str],
    without: Mapping[Names, str],
    *,
    writing: bool = False,
) -> Iterator[str]:
    """Problems of the folder as a whole: orphans, strange files, wrong reasons for no golden.

    Args:
        families: all that are registered, by library and name.
        libraries: the libraries to report on.
        writing: others are writing goldens meanwhile, so a partial file is not strange.
    """
    files = golden_files(root)
    for names, path in files.items():
        if names[0] in libraries and names not in families:
            yield f"{path}: an orphan: library {names[0]!r} has no family {names[1]!r}"
        if names in without:
            yield f"{path}: without.toml says why this family has no golden, but it has one"
    for library, family in without.keys() - families.keys():
        if library in libraries:
            yield f"{root}/without.toml: field '{library}.{family}' names no family"
    for path in strangers(root):
        if writing and path.suffix == PARTIAL:
            continue
        if path.parent == root or path.parent.name in libraries:
            yield f"{path}: no golden by its name; what an interrupted run left can go"


def checked_file(library: str, family: Family, root: Path) -> tuple[Golden | None, list[str]]:
    """The family's golden, and the problems of its file; needs no model.

    Checked: the file is whole, unedited, and belongs to this family; its provenance is given; its
    recipe is today's.
    """
    path = golden_path(root, library, family.name)
    if not path.exists():
        return None, [f"{path}: missing; `conformance golden update` makes it"]
    try:
        golden = load_golden(path)
    except GoldenError as error:
        return None, [str(error)]
    problems = [f"{path}: {text}" for text in _provenance(golden, library, family.name)]
    if golden.provenance.recipe != recipe_hash(family):
        problems.append(
            f"{path}: stale: the family's config, weights recipe or prompts are not those that it "
            "was made from; `conformance golden update` makes it anew"
        )
    return golden, problems


def _provenance(golden: Golden, library: str, family: str) -> Iterator[str]:
    """Errors in the golden's provenance, as far as they can be recognised."""
    for field, want in (
        ("library", library),
        ("family", family),
        ("dtype", DTYPE),
        ("seed", SEED),
    ):
        got = getattr(golden, field)
        if got != want:
            yield f"field {field!r} is {got!r}, by its place it must be {want!r}"
    source = golden.provenance
    for field in ("recipe", "weights"):
        if not _SHA256.fullmatch(getattr(source, field)):
            yield f"field 'provenance.{field}' is no SHA-256"
    if not source.versions:
        yield "field 'provenance.versions' is empty"
    for field in ("device", "oracle"):
        if not getattr(source, field):
            yield f"field 'provenance.{field}' is empty"


def check(
    pair: tuple[Library, Family],
    *,
    root: Path,
    engines: Sequence[type[Engine]],
    files_only: bool,
    expectations: Expectations | None,
) -> Checked:
    """Check one family's golden: its file, and the numbers against today's library."""
    library, family = pair
    names = (library.name, family.name)
    golden, problems = checked_file(library.name, family, root)
    if golden is None or problems or files_only:
        return Checked(*names, tuple(problems))
    mine = [engine for engine in engines if engine.library == library.name]
    try:
        subject = load_subject(library, family)
        problems += _weights(subject, golden, golden_path(root, *names))
        found = differences(subject, mine, golden, expectations)
    except Exception as error:  # noqa: BLE001 - whatever a library raises is a problem of this one
        text = str(error) if isinstance(error, ConformanceError) else error_text(error)
        if lack := loader_error(error):
            return Checked(*names, not_playable=f"not playable here: {remedied(lack)}")
        return Checked(*names, (*problems, f"{library.name}/{family.name}: {text}"))
    unknown = [difference for difference in found if not difference.known]
    meaning = in_short(unknown)
    if unknown:
        meaning += _elsewhere(subject, golden)
    return Checked(*names, tuple(problems), found, meaning)


def _elsewhere(subject: Subject, golden: Golden) -> str:
    """A note on another possible cause, if the golden was made on another device."""
    there, here = golden.provenance.device, subject.library.device()
    if there == here:
        return ""
    return (
        f", or the device rounds otherwise: the golden is of {there}, this is {here}; "
        "see `conformance golden check --cpu`"
    )


def _weights(subject: Subject, golden: Golden, path: Path) -> list[str]:
    """Check the digest of the weights, but only on the golden's device.

    Another device may compute different bits while loading: there only the comparisons decide.
    """
    source, library = golden.provenance, subject.library
    if library.device() != source.device or library.fingerprint(subject.model) == source.weights:
        return []
    return [
        f"{path}: field 'provenance.weights': the library loads other parameters from the same "
        "recipe than it did"
    ]
