"""mlx-vlm's server computes an image's arrays in another thread than the one that began them.

mlx_vlm/server/generation.py:1212 calls the processor in the thread of the request. Processors that
compute with mlx, as those of deepseek_vl_v2, internvl, kimi_vl and llava_bunny, return arrays that
are not computed yet, on a stream that only this thread has. The generating thread then raises
where it needs their values, first in mlx_vlm/apc.py:168, and ends all answers under way. Fixed by
``mx.eval`` of what the processor returns, in the thread of the request.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.apc import _tensor_content_hash
from mlx_vlm.models.deepseek_vl_v2.processing_deepsek_vl_v2 import ImageTransform
from PIL import Image


def of_request(evaluated: bool) -> mx.array:
    pixels = ImageTransform()(Image.new("RGB", (8, 8)))
    if evaluated:
        mx.eval(pixels)
    return pixels


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}, mlx {version('mlx')}: pixels of a request's thread")
    with ThreadPoolExecutor(1) as requests:
        right = _tensor_content_hash(requests.submit(of_request, True).result())
        try:
            found = _tensor_content_hash(requests.submit(of_request, False).result())
        except RuntimeError as error:
            print(f"expected the hash {right}, got RuntimeError: {error}")
            return 1
    print(f"expected the hash {right}, got {found}")
    return int(found != right)


if __name__ == "__main__":
    sys.exit(main())
