"""Does one item of work in a child process of a worker, so that a crash does not affect the worker.

Its arguments are a folder that holds the work, and the id of the parent process with which it ends.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from conformance.core.kernel_caches import OwnKernels
from conformance.core.kernel_header import compile_header
from conformance.core.watched_child import end_with_parent

ASKED, ANSWER = "asked", "answer"


def main(folder: Path, parent: int) -> None:
    """Do the work, and leave the result in the folder."""
    end_with_parent(parent)
    compile_header()
    kernels = OwnKernels(folder / "kernels")
    work, item = pickle.loads((folder / ASKED).read_bytes())
    part = folder / f"{ANSWER}.part"
    part.write_bytes(pickle.dumps(work(item)))
    kernels.join()
    part.rename(folder / ANSWER)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
