"""Arrays of the processor that nobody needs any more are put together over the rows of a prefill.

The server hands all that the processor gave to the batch generator, beside the embeddings that were
made of it. mlx_vlm/generate/ar.py:833-847 concatenates each array over the rows: two images (or
sounds) whose arrays have other shapes end the whole batch with a ValueError, though the language
model takes no notice of them. Mended by handing on only what the language model takes.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate import ar


def row(length: int, name: str, array: mx.array) -> dict:
    return {"inputs_embeds": mx.zeros((1, length, 8)), name: array}


CASES = {
    # What idefics2's and idefics3's processors give for images of two sizes.
    "pixel_attention_mask": (mx.ones((1, 1, 32, 32)), mx.ones((1, 1, 16, 32))),
    # inkling, gemma4 and qwen3_omni_moe: sounds of two lengths.
    "input_features": (mx.ones((1, 23, 128)), mx.ones((1, 35, 128))),
    # gemma3: two prompts of other lengths, the images alike.
    "attention_mask_4d": (mx.ones((1, 1, 5, 5)), mx.ones((1, 1, 9, 9))),
    # hunyuan_vl: four kinds of positions, where the generator knows of three.
    "position_ids": (mx.ones((1, 4, 5)), mx.ones((1, 4, 9))),
}


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}: arguments of two rows, merged for one prefill")
    failed = 0
    for name, (one, other) in CASES.items():
        shapes = f"{name} {one.shape} and {other.shape}"
        try:
            rows = [row(5, name, one), row(9, name, other)]
            ar._merge_prefill_prompt_kwargs(rows, [[1] * 5, [1] * 9])
        except ValueError as error:
            failed += 1
            print(f"{shapes}: ValueError: {error}")
        else:
            print(f"{shapes}: merged")
    print("expected: no error")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
