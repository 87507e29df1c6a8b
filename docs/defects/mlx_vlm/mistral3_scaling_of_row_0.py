"""mistral3 (ministral3, mistral4): attention scaling of all rows goes by the offset of row 0.

mlx_vlm/models/mistral3/language.py:180 (ministral3 inside mistral3) and mistral4/language.py:267
take offset[0]. If row 0 is padded it is negative, the logarithm in _get_llama_4_attn_scale
(mistral4/language.py:14) gets 0 or less, and -inf or NaN scales the first tokens of all rows:
longer rows become NaN. If not, all rows are scaled as if they were as long as row 0. Mended by
the offset of each row, not below 0.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.cache import BatchKVCache, KVCache
from mlx_vlm.models.mistral3.config import TextConfig
from mlx_vlm.models.mistral3.language import LanguageModel

COMMON = {
    **{"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 64},
    **{"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-5},
    **{"max_position_embeddings": 4096, "tie_word_embeddings": True},
}
LATENT = {
    **{"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8},
    **{"v_head_dim": 16, "qk_head_dim": 16, "rope_interleave": True, "n_routed_experts": 4},
    **{"n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
}
LONG, SHORT = [7, 21, 40, 2, 60, 11, 38, 5, 9, 33, 17, 4], [50, 29, 14, 8]


def make(kind: str, scaled_from: int) -> LanguageModel:
    rope = {
        **{"rope_type": "yarn", "type": "yarn", "rope_theta": 1000.0, "factor": 4.0},
        **{"beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
        **{"llama_4_scaling_beta": 0.1, "original_max_position_embeddings": scaled_from},
    }
    extra = LATENT if kind == "mistral4" else {}
    mx.random.seed(0)
    model = LanguageModel(TextConfig(model_type=kind, rope_parameters=rope, **COMMON, **extra))
    model.update(tree_map(lambda w: w + 0.2 * mx.random.normal(w.shape), model.parameters()))
    return model


def caches(padding: list[int] | None) -> list:
    return [BatchKVCache(padding) if padding else KVCache() for _ in range(2)]


def main() -> int:
    padding = [len(LONG) - len(SHORT), 0]
    print(f"mlx-vlm {version('mlx-vlm')}, a decode step beside another row against the same alone:")
    wrong = 0
    for kind in ("ministral3", "mistral4"):
        for scaled_from in (16384, 4):
            model = make(kind, scaled_from)
            want = []
            for prompt in (SHORT, LONG):
                alone = caches(None)
                model(mx.array([prompt]), cache=alone)
                want.append(model(mx.array([[3]]), cache=alone).logits[:, -1])
            for order in ([0, 1], [1, 0]):
                rows = [[0] * padding[n] + (SHORT, LONG)[n] for n in order]
                cache = caches([padding[n] for n in order])
                model(mx.array(rows), cache=cache)
                got = model(mx.array([[3], [3]]), cache=cache).logits[:, -1]
                apart = mx.abs(got - mx.concatenate([want[n] for n in order])).max().item()
                wrong += not apart < 1e-3
                names = " then ".join(f"{len((SHORT, LONG)[n])} tokens" for n in order)
                print(f"{kind}, scaled from {scaled_from}, {names}: expected 0, got {apart:.3g}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
