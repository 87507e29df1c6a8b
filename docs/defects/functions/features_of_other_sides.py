"""mlx-vlm's kept features of a picture are found for one with other sides and the same bytes.

mlx_vlm/vision_cache.py:63 hashes the bytes of a picture without its size: a plain picture of 6 by 4
pixels and one of 4 by 6 have one key, though their patches are others. Fixed by hashing the size
and the mode, too.
"""

import sys
from importlib.metadata import version

from mlx_vlm.vision_cache import VisionFeatureCache
from PIL import Image


def main() -> int:
    cache = VisionFeatureCache()
    cache.put(Image.new("RGB", (6, 4)), "features of 6 by 4")
    found = cache.get(Image.new("RGB", (4, 6)))
    print(f"mlx-vlm {version('mlx-vlm')}: expected nothing for a picture of 4 by 6")
    print(f"found: {found}")
    return 0 if found is None else 1


if __name__ == "__main__":
    sys.exit(main())
