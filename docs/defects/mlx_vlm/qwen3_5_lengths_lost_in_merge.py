"""qwen3_5's layers forget where right-padded rows end, once a row is padded on the left as well.

With padding on the left, mlx_vlm/models/qwen3_5/language.py:1304-1371 runs each row by itself, and
puts the rows' caches together with ``merge``, which knows neither the ``lengths`` nor the right
padding that ``prepare`` gave the batch's caches. All later pieces of the prompt are then taken for
real in every row, and so is the padding. Rows that reuse prefixes of unequal length and have
unequal rests are padded on both sides (mlx_vlm/generate/ar.py:2738). Fixed by handing both on.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.cache import ArraysCache, KVCache
from mlx_vlm.models.qwen3_5.config import TextConfig
from mlx_vlm.models.qwen3_5.language import Qwen3_5Model

CONFIG = {
    **{"model_type": "qwen3_5_text", "hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 64},
    **{"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-6},
    **{"linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8},
    **{"linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "full_attention_interval": 2},
    **{"intermediate_size": 32, "max_position_embeddings": 64},
    "rope_parameters": {
        **{"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        "mrope_section": [2, 1, 1],
    },
}
PREFIXES, RESTS = [[5, 9, 33, 7], [8, 2]], [[11, 12, 13, 14, 15], [21, 22]]
PIECES = (2, 3)


def positions(start: int, count: int) -> mx.array:
    return mx.broadcast_to(mx.arange(start, start + count)[None, None], (3, 1, count))


def alone(model: Qwen3_5Model, row: int, prompt: list[int]) -> list[object]:
    """The caches of a row's tokens, run by themselves."""
    caches = [ArraysCache(size=2), KVCache()]
    model(mx.array([prompt]), cache=caches, position_ids=positions(0, len(prompt)))
    return caches


def main() -> int:
    mx.random.seed(0)
    model = Qwen3_5Model(TextConfig.from_dict(CONFIG))
    rows = [alone(model, row, prefix) for row, prefix in enumerate(PREFIXES)]
    caches = [kind.merge([r[i] for r in rows]) for i, kind in enumerate((ArraysCache, KVCache))]
    longest = max(map(len, RESTS))
    for cache in caches:
        cache.prepare(
            right_padding=[longest - len(rest) for rest in RESTS],
            lengths=[len(rest) for rest in RESTS],
        )
    padded = mx.array([rest + [0] * (longest - len(rest)) for rest in RESTS])
    starts = [len(prefix) for prefix in PREFIXES]
    done = 0
    for piece in PIECES:
        places = mx.concatenate([positions(s + done, piece) for s in starts], axis=1)
        model(padded[:, done : done + piece], cache=caches, position_ids=places)
        done += piece
        print(f"mlx-vlm {version('mlx-vlm')}: lengths after {done} tokens: {caches[0].lengths}")
    found = caches[0].cache[1][1]
    wanted = alone(model, 1, PREFIXES[1] + RESTS[1])[0].cache[1][0]
    off = mx.abs(found - wanted).max().item() / mx.abs(wanted).max().item()
    print(f"state of the row of {len(RESTS[1])}: {off:.3g} of its size from the same row alone")
    print("expected: lengths of what is left, and 0 up to rounding")
    return 1 if off > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main())
