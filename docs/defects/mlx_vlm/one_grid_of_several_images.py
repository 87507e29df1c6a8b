"""A batch keeps one of the grids of a request with several images.

``_prompt_kwarg_row`` (mlx_vlm/generate/ar.py:640) takes the first axis of every argument for the
batch. ``image_grid_thw`` of one request is ``[images, 3]``: with as many images as the batch has
rows it keeps one grid for the row's index, else the first. ernie4_5_moe_vl makes positions from the
grids while it prefills (models/ernie4_5_moe_vl/language.py:478) and reads beyond the array for the
second image: stray memory. Fixed by knowing which arguments have rows.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate.ar import _prompt_kwarg_row

GRIDS = mx.array([[1, 4, 4], [1, 2, 6]])


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: a request with grids {GRIDS.tolist()}")
    found = []
    for rows in (2, 3):
        kept = _prompt_kwarg_row("image_grid_thw", GRIDS, 0, rows)
        found.append(kept.tolist() == GRIDS.tolist())
        print(f"beside {rows - 1} other requests it keeps {kept.tolist()}")
    print("expected: both grids each time")
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
