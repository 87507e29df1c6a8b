"""multi_modality makes one row of several prompts when it puts images into them.

Model.add_image_token (mlx_vlm/models/multi_modality/multi_modality.py:225) flattens the ids of all
prompts, and cuts them where the first prompt's image token is; the rows after it are appended. Of
mlx-vlm only batch_generate embeds several prompts at once. Mended by embedding each prompt alone.
"""

import sys
from importlib.metadata import version

from mlx_vlm.models.multi_modality.multi_modality import Model, np

IMAGE, PATCHES = 9, 4
PROMPTS = np.array([[1, IMAGE, 2, 3], [0, 4, IMAGE, 5]])


def main() -> int:
    places = np.nonzero(PROMPTS[0] == IMAGE)
    # It is called so in get_input_embeddings; of the model it reads nothing.
    made, _ = Model.add_image_token(None, np.stack(places, axis=1), PROMPTS, IMAGE, PATCHES)
    wanted = (len(PROMPTS), PROMPTS.shape[1] - 1 + PATCHES)
    print(f"mlx-vlm {version('mlx-vlm')}: {len(PROMPTS)} prompts, each with an image")
    print(f"ids with the images' places: {made.tolist()}, shape {made.shape}")
    print(f"expected shape: {wanted}")
    return 0 if made.shape == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
