"""mllama: a prompt loses the processor's padding, its cross attention mask does not.

mlx_vlm/generate/ar.py:741 (_unpad_batch_prompts) cuts the padding off the token ids, the embeddings
and the arguments whose second axis is the prompt. The cross attention masks have the prompt on
their third axis, ``[1, 1, length, ...]``, and stay as they are: when rows are padded in front
again, a mask lies over other tokens, and text before an image sees it. Only batch_generate, never
the server. Fixed by cutting that axis of these two.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.generate.ar import _unpad_batch_prompts

IMAGE, PAD = 256, 249
PROMPTS = [[5, 6, IMAGE, 7, PAD, PAD], [1, 2, 3, 4, IMAGE, 8]]
MASK = [[int(token != PAD) for token in prompt] for prompt in PROMPTS]
NAMES = ("cross_attention_mask", "full_text_row_masked_out_mask")


def main() -> int:
    length = len(PROMPTS[0])
    rows = []
    for prompt in PROMPTS:
        sees = mx.arange(length) >= prompt.index(IMAGE)  # [length]
        rows.append(dict.fromkeys(NAMES, sees[None, None, :, None]))
    prompts, rows = _unpad_batch_prompts(mx.array(PROMPTS), mx.array(MASK), rows)
    print(f"mlx-vlm {version('mlx-vlm')}: prompts without padding, and their masks")
    wrong = 0
    for prompt, row in zip(prompts, rows, strict=True):
        for name in NAMES:
            wrong += row[name].shape[2] != len(prompt)
            print(f"{name}: of {row[name].shape[2]} tokens, expected {len(prompt)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
