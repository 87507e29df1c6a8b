"""Does one item of work in a child process of a worker, so that no crash is the worker's own.

Started with a folder that has what to do, and the number of the process that it ends with.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from conformance.core.kernel_caches import OwnKernels
from conformance.core.watched_child import end_with_parent

ASKED, ANSWER = "asked", "answer"


def main(folder: Path, parent: int) -> None:
    """Do it, and leave the result in the folder."""
    end_with_parent(parent)
    kernels = OwnKernels(folder / "kernels")
    work, item = pickle.loads((folder / ASKED).read_bytes())
    part = folder / f"{ANSWER}.part"
    part.write_bytes(pickle.dumps(work(item)))
    kernels.join()
    part.rename(folder / ANSWER)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
