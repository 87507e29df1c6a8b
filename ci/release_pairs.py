"""Shows between which releases with a known difference `conformance releases` finds one.

    python ci/release_pairs.py DIR [DIR ...] > docs/release-pairs.md

Each DIR is an output folder of `conformance releases --json DIR`. A difference is found if a case
of one of the pair's families, or one of its cache classes, behaves differently in the two releases.
Anything that exists in only one release (a class, a method, an option, a family that can be loaded)
is shown but not counted. A pair is not run if neither kind of result exists for both releases.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from conformance.core.verdict import CaseResult, Verdict
from conformance.report.history import History, histories
from conformance.report.jsonl import read_results
from conformance.report.moved import moved_streams
from conformance.tools.releases.cache_outcomes import CacheOutcome, changes, read_outcomes

_NOT_RUN, _NOT_FOUND = "not run", "not found"
# Prefix of the line for a class, method, option or family that only one release has.
_ONLY = "only: "
# In the line of a cache class that behaves differently.
_DIFFERS = ": differs in "
PAIRS = Path(__file__).with_name("release_pairs.toml")


@dataclass(frozen=True)
class Pair:
    """Two releases, the defect between them, and where it shows.

    ``says`` is a pattern that the line of a cache class must match to be about the defect,
    ``shows`` one that the line of a case must match. ``scenarios`` are those that can show it;
    empty means all. ``unseen`` says why nothing is found or can be run; ``reachable`` is false
    if the reason is that no batch that the library makes on a CPU shows the defect. ``pins`` are
    versions installed with both releases, such as ``mlx==0.32.4``.
    """

    library: str
    before: str
    after: str
    defect: str
    source: str
    families: tuple[str, ...]
    caches: tuple[str, ...]
    says: str = ""
    scenarios: tuple[str, ...] = ()
    shows: str = ""
    unseen: str = ""
    reachable: bool = True
    pins: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """The name of the folder for its results."""
        return "+".join((f"{self.library}-{self.before}-{self.after}", *self.pins))

    def within(self, folders: Sequence[Path]) -> list[Path]:
        """The folders for this pair's pins: results with other versions do not apply to it."""
        own = self.folder.partition("+")[2]
        return [folder for folder in folders if folder.name.partition("+")[2] == own]

    @classmethod
    def of(cls, table: dict[str, Any]) -> Pair:
        """The pair described by a table of the file."""
        names = ("library", "before", "after", "class", "source")
        places = (tuple(table["families"]), tuple(table["caches"]))
        return cls(
            *(table[name] for name in names),
            *places,
            table.get("says", ""),
            tuple(table.get("scenarios", ())),
            table.get("shows", ""),
            table.get("unseen", ""),
            table.get("reachable", True),
            tuple(table.get("pins", ())),
        )


def pairs() -> list[Pair]:
    """All pairs of the file."""
    return [Pair.of(table) for table in tomllib.loads(PAIRS.read_text())["pair"]]


def judged(pair: Pair, folders: Sequence[Path]) -> str:
    """The difference: a case or a cache class; else `only: ...`, `not found` or `not run`."""
    folders = pair.within(folders)
    cases = [_cases(pair, version, folders) for version in (pair.before, pair.after)]
    caches = [_caches(pair, version, folders) for version in (pair.before, pair.after)]
    versions = (pair.before, pair.after)
    ran_cases, ran_caches = all(cases), all(caches)
    absent: list[str] = []
    if ran_cases:
        found = histories(list(zip(versions, cases, strict=True)), mended=True)
        found = tuple(h for h in found if re.search(pair.shows, _line(h)))
        moved = [h for h in found if h.changed] or [h for h in found if h.differs]
        if behaving := [h for h in moved if not _absent(h)]:
            return f"{_line(behaving[0])}{_more(behaving)}"
        if streams := [text for text in _streams(*cases) if re.search(pair.shows, text)]:
            return f"{streams[0]}{_more(streams)}"
        absent = [f"{_ONLY}{_line(h)}{_more(moved)}" for h in moved]
    lines = changes(list(zip(versions, caches, strict=True))) if ran_caches else []
    lines = [line for line in lines if re.search(pair.says, line)]
    if differing := [line for line in lines if _DIFFERS in line]:
        return f"{differing[0]}{_more(differing)}"
    if lines or absent:
        return f"{_ONLY}{lines[0]}{_more(lines)}" if lines else absent[0]
    return _NOT_FOUND if ran_cases or ran_caches else _NOT_RUN


def _line(history: History) -> str:
    return f"`{history.case}` {history.schedule}: {history.signatures}"


def _streams(before: Sequence[CaseResult], after: Sequence[CaseResult]) -> list[str]:
    """Lines about single streams that themselves differ."""
    old = {result.case: result for result in before}
    both = [(old[result.case], result) for result in after if result.case in old]
    return [f"`{new.case}` {text}" for was, new in both if (text := moved_streams(was, new))]


def _absent(history: History) -> bool:
    """Whether a release refuses the case, or cannot load the family at all."""
    return any(
        outcome is not None
        and (outcome.verdict is Verdict.UNSUPPORTED or outcome.signature.startswith("ModelError"))
        for outcome in history.outcomes
    )


def _more(found: Sequence[object]) -> str:
    return f" and {len(found) - 1} more" if len(found) > 1 else ""


def _cases(pair: Pair, version: str, folders: Sequence[Path]) -> list[CaseResult]:
    files = [folder / f"{pair.library}-{version}.jsonl" for folder in folders]
    found = {r.case: r for file in files if file.is_file() for r in read_results(file)}
    own = [r for r in found.values() if _any(r.family, pair.families) and not _unjudged(r)]
    own = [r for r in own if r.scenario in (pair.scenarios or (r.scenario,))]
    # If no family could be loaded in a release, nothing was run there.
    return own if any(_ran(r) for r in own) or _lacks_class(own) else []


def _ran(result: CaseResult) -> bool:
    """Whether the model was loaded; a result has no schedules if a single stream crashes."""
    loads = not any(str(f.got).startswith("ModelError") for f in result.evidence)
    return bool(result.schedules) or (result.verdict is Verdict.CRASH and loads)


def _unjudged(result: CaseResult) -> bool:
    """Whether this project could not run the case, which does not depend on the release."""
    return any(finding.check == "harness" for finding in result.evidence)


def _lacks_class(results: Sequence[CaseResult]) -> bool:
    """Whether a release lacks the model, rather than failing to load it."""
    return any("has no attribute" in str(f.got) for r in results for f in r.evidence)


def _caches(pair: Pair, version: str, folders: Sequence[Path]) -> list[CacheOutcome]:
    files = [folder / f"{pair.library}-{version}.caches.jsonl" for folder in folders]
    found = {one.name: one for file in files if file.is_file() for one in read_outcomes(file)}
    own = [one for one in found.values() if _any(one.name, pair.caches)]
    # A class that only one of the two has is a difference too.
    return own or ([CacheOutcome("none")] if found and pair.caches else [])


def _any(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def main(folders: Sequence[Path]) -> None:
    """Print the table and its totals."""
    known = pairs()
    given = [(pair, judged(pair, folders)) for pair in known]
    ran = [text for _, text in given if text != _NOT_RUN]
    found = [text for text in ran if text != _NOT_FOUND and not text.startswith(_ONLY)]
    by_case = [text for text in found if text.startswith("`")]
    only = [text for text in ran if text.startswith(_ONLY)]
    reachable = [text for pair, text in given if pair.reachable]
    shown = [text for text in reachable if text.startswith("`")]
    classes = len({pair.defect for pair in known})
    print("# Pairs of releases\n")
    print(
        f"{len(known)} pairs of releases with {classes} classes of defects. Of the {len(ran)} that "
        f"were run, {len(found)} show a difference in behaviour ({len(by_case)} in a case, "
        f"{len(found) - len(by_case)} in a cache class), {len(only)} show something that exists in "
        f"one release only, and {ran.count(_NOT_FOUND)} show nothing; {len(known) - len(ran)} were "
        f"not run. {len(known) - len(reachable)} of all pairs cannot show in any batch that the "
        f"library makes on a CPU; of the other {len(reachable)} a case shows "
        f"{len(shown)} ({len(shown) / max(len(reachable), 1):.0%}). "
        "Whether the difference is the named defect was not traced. "
        "Written by `python ci/release_pairs.py DIR/*` after "
        "`python ci/play_release_pairs.py DIR`.\n"
    )
    print("| pair | defect | source | found by |\n|---|---|---|---|")
    for pair, text in given:
        name = ", ".join((f"{pair.library} {pair.before}", pair.after, *pair.pins))
        why = f": {pair.unseen}" if pair.unseen and text in (_NOT_RUN, _NOT_FOUND) else ""
        safe = f"{text}{why}".replace("|", "\\|")
        print(f"| {name} | {pair.defect} | {pair.source} | {safe} |")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
