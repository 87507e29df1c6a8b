"""paddleocr_vl: the image processor makes one grid for all images of a call.

mlx_vlm/models/paddleocr_vl/processing_paddleocr_vl.py:207-231 puts the images into one array, as if
they were the frames of one, and notes one grid: the processor then looks for the second image's
grid in vain. Images of other sizes do not even fit into the array (:199). So a request with two
images fails, and so does batch_generate with two prompts. Fixed by a grid for each image.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.paddleocr_vl.processing_paddleocr_vl import ImageProcessor


def main() -> int:
    image = mx.zeros((56, 56, 3), mx.uint8).__array__()
    print(f"mlx-vlm {version('mlx-vlm')}, paddleocr_vl: grids of images of one size")
    wrong = 0
    for count in (1, 2):
        made = ImageProcessor().preprocess(images=[image] * count)
        got = len(made["image_grid_thw"])
        wrong += got != count
        print(f"{count} images: expected {count}, got {got}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
