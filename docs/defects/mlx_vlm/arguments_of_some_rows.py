"""An argument that only some rows of a prefill have is given to all rows.

mlx_vlm/generate/ar.py:833-847 puts each argument together over those rows that have it and forgets
which they were. Requests of text have none of ``mm_token_type_ids``, ``visual_pos_masks`` and the
like: one mask for two rows broadcasts over both, so the text row is treated as if it held its
neighbour's image; two masks for three rows end the batch. Fixed by zeros for rows without.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate import ar


def row(length: int, mask: list[int] | None) -> dict:
    made = {"inputs_embeds": mx.zeros((1, length, 8))}
    if mask is not None:
        made["mm_token_type_ids"] = mx.array([mask])
    return made


def merged(*masks: list[int] | None) -> list[list[int]]:
    rows = [row(4, mask) for mask in masks]
    _, together = ar._merge_prefill_prompt_kwargs(rows, [[1] * 4] * len(rows))
    return together["mm_token_type_ids"].tolist()


def main() -> int:
    image, text = [0, 1, 1, 0], None
    print(f"mlx-vlm {version('mlx-vlm')}: mm_token_type_ids of a prefill, 1 where an image stands")
    wrong = 0
    for name, rows, want in (
        ("image, text", (image, text), [image, [0] * 4]),
        ("text, image", (text, image), [[0] * 4, image]),
        ("image, text, image", (image, text, image), [image, [0] * 4, image]),
    ):
        got = merged(*rows)
        wrong += got != want
        print(f"rows {name}: expected {want}, got {got}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
