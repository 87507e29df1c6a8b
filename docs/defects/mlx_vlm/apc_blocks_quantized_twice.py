"""Prefix caching with kv_bits: keys and values of a reused prefix are quantized a second time.

The blocks of a prompt are kept unquantized: layer_kv_for_apc (mlx_vlm/apc.py:4494) takes what the
quantized cache gives back. A prompt that reuses them quantizes that again
(_fill_batch_layer_cache, line 4057), which gives other keys: neither mx.quantize nor TurboQuant
gives the same for its own output. Fixed by keeping the quantized arrays in the blocks.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.apc import _fill_batch_layer_cache, layer_kv_for_apc

QUANT = {
    "8 bits": {"bits": 8, "group_size": 64, "scheme": "uniform"},
    "3.5 bits, TurboQuant": {"bits": 3.5, "group_size": 64, "scheme": "turboquant"},
}


def filled(keys: mx.array, values: mx.array, config: dict[str, object]) -> object:
    tokens = keys.shape[2]
    return _fill_batch_layer_cache(
        keys, values, [0], [tokens], quantize=True, kv_quant_config=config
    )


def main() -> int:
    mx.random.seed(0)
    keys, values = mx.random.normal((1, 1, 8, 64)), mx.random.normal((1, 1, 8, 64))
    print(f"mlx-vlm {version('mlx-vlm')}: a prompt's keys, and those of a prompt that reuses them")
    wrong = False
    for what, config in QUANT.items():
        first, _ = layer_kv_for_apc(filled(keys, values, config), batch_idx=0)
        again, _ = layer_kv_for_apc(filled(first, values, config), batch_idx=0)
        apart = mx.abs(first - again).max().item()
        wrong |= apart > 0
        print(f"{what}: {apart:.3g} apart")
    print("expected: 0, as without prefix caching")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
