"""Runs both releases of each pair, with the families and scenarios that the pair names.

    python ci/play_release_pairs.py DIR [OPTION ...]

Calls `conformance releases` once for all pairs with the same two releases and pins; each call's
results go to a folder of their own in DIR, for `ci/release_pairs.py`. Existing results are not
computed again. The options, such as `--cache-dir`, are passed on. About 40 environments are made.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from release_pairs import Pair, pairs


def command(group: Sequence[Pair], folder: Path, options: Sequence[str]) -> list[str]:
    """The call for pairs with the same two releases."""
    first = group[0]
    args = ["releases", f"{first.library}=={first.before},{first.after}"]
    for option, names in (
        ("--family", (name for pair in group for name in pair.families)),
        ("--scenario", (name for pair in group for name in pair.scenarios)),
    ):
        args += itertools.chain.from_iterable((option, name) for name in dict.fromkeys(names))
    caches = "also" if any(pair.caches for pair in group) else "no"
    args += itertools.chain.from_iterable(("--pin", pin) for pin in first.pins)
    args += ["--caches", caches, "--json", str(folder / first.folder), "--resume", *options]
    return [sys.executable, "-m", "conformance", *args]


def groups(known: Iterable[Pair]) -> list[list[Pair]]:
    """The pairs grouped by their two releases and their pins, in the order of the file."""
    found: dict[str, list[Pair]] = {}
    for pair in known:
        found.setdefault(pair.folder, []).append(pair)
    return list(found.values())


def main(folder: Path, options: Sequence[str]) -> int:
    """Run all pairs; return the worst exit code of the calls, whose output is passed on."""
    codes = [subprocess.call(command(group, folder, options)) for group in groups(pairs())]
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
