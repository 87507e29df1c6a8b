"""A file of kept prefixes that cannot be read is removed, but its bytes stay counted.

mlx_vlm/apc.py:1345 (_rebuild_index) adds a file's size before it reads the file. A store with a
bound gives up prefixes for room that is free. Fixed by adding it once the file
was read.
"""

import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from mlx_vlm.apc import DiskBlockStore


def main() -> int:
    with TemporaryDirectory() as folder:
        first = DiskBlockStore(Path(folder), "model")
        first.close()
        name = f"{first.SHARD_PREFIX}{1:032x}{first.SUFFIX}"
        (first.dir / name).write_bytes(b"0" * 11)
        store = DiskBlockStore(Path(folder), "model")
        store.close()
        left = sum(file.stat().st_size for file in store.dir.iterdir())
        print(
            f"mlx-vlm {version('mlx-vlm')}: {left} bytes are there, {store.disk_bytes} are counted"
        )
        return 0 if store.disk_bytes == left else 1


if __name__ == "__main__":
    sys.exit(main())
