"""batch_generate: rope deltas count the padding that is cut off again.

batch_generate embeds a padded batch at once. get_rope_index takes the deltas from the padded
length (mlx_vlm/models/qwen2_vl/language.py:389, with padding's own position 1 among the maxima),
then mlx_vlm/generate/ar.py:3550 gives each row its ids without padding, but these deltas: decode
goes on that many positions too early. Fixed by the delta of the row without its padding.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.generate import ar
from mlx_vlm.models.qwen2_vl.language import LanguageModel

ROWS = [[5, 6, 7, 8, 9, 10], [11, 12, 13], [14]]


def main() -> int:
    config = SimpleNamespace(
        vision_config=SimpleNamespace(spatial_merge_size=2),
        **{"image_token_id": 60, "video_token_id": 61, "vision_start_token_id": 62},
    )
    model = SimpleNamespace(config=config)
    longest = max(map(len, ROWS))
    ids = mx.array([[0] * (longest - len(row)) + row for row in ROWS])
    mask = mx.array([[0] * (longest - len(row)) + [1] * len(row) for row in ROWS])
    _, deltas = LanguageModel.get_rope_index(model, ids, None, None, mask)
    kwargs = ar._split_prompt_kwargs_per_row({"rope_deltas": deltas}, len(ROWS))
    prompts, kwargs = ar._unpad_batch_prompts(ids, mask, kwargs)
    print(f"mlx-vlm {version('mlx-vlm')}, qwen2_vl: texts that batch_generate embeds together")
    wrong = 0
    for prompt, given in zip(prompts, kwargs, strict=True):
        delta = int(given["rope_deltas"].item())
        wrong += delta != 0
        first = len(prompt) + delta
        print(f"{len(prompt)} tokens: next position expected {len(prompt)}, got {first}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
