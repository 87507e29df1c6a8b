"""Tries every reader of a user's file with files that are nearly right, and prints a table.

    python ci/fuzz.py --examples 10000

Any result but a sentence that names the file is a failure. Exit code 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fuzzed_readers import FUZZED, Fuzzed, nearly_right


def tried(fuzzed: Fuzzed, examples: int, seed: int) -> list[str]:
    """A description of each failure of a reader on an example."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        fuzzed.beside(folder)
        rngs = (Random(f"{seed} {number}") for number in range(examples))
        found = [fuzzed.problem(folder, nearly_right(fuzzed, rng)) for rng in rngs]
    return [problem for problem in found if problem]


def main() -> int:
    """Print a row for each reader."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", action="append", help="only of this name; may be repeated")
    given_options = parser.parse_args()
    print("| reader | examples | failures | seconds |\n|---|---|---|---|", flush=True)
    total = 0
    for fuzzed in FUZZED:
        if given_options.reader and fuzzed.name not in given_options.reader:
            continue
        begin = time.monotonic()
        failures = tried(fuzzed, given_options.examples, given_options.seed)
        spent = time.monotonic() - begin
        row = (fuzzed.name, given_options.examples, len(failures), f"{spent:.0f}")
        print(f"| {' | '.join(map(str, row))} |", flush=True)
        for problem in failures[:3]:
            print(f"  {problem[:500]}", file=sys.stderr, flush=True)
        total += len(failures)
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
