"""Prefix caching: images that a processor gives as a list in bfloat16 all have the key 0.

hash_image_payload (mlx_vlm/apc.py:454) hashes ``pixel_values`` as one tensor and drops the
exception that a list of bfloat16 arrays, or of arrays of several shapes, raises in numpy; without
an ``image_ref``, which the server gives only where there are no ``pixel_values``
(mlx_vlm/server/generation.py:1225), line 461 answers 0. The processors of deepseekocr,
deepseekocr_2 and unlimited_ocr give ``[crops, whole images]``: two pages of one size with the same
question are one prompt, and the second is answered with the keys and values of the first, also
another user's. Fixed by a key of each array of the list.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.apc import hash_image_payload


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: keys of two images, expected to differ")
    bad = False
    crops = mx.zeros((1, 3, 8, 8))
    pages = [mx.full((1, 3, 8, 8), value, mx.bfloat16) for value in (0.1, 0.9)]
    wider = mx.zeros((1, 3, 8, 16))
    kinds = {
        "array": lambda page: page,
        "list": lambda page: [crops, page],
        "list of two sizes": lambda page: [page.astype(mx.float32), wider],
    }
    for kind, wrap in kinds.items():
        keys = [hash_image_payload(pixel_values=wrap(page)) for page in pages]
        bad = bad or keys[0] == keys[1]
        print(f"  pixel_values as {kind}: {keys[0]} and {keys[1]}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
