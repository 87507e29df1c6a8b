"""How much smaller quantized caches are, from the cache bytes of two runs of equal schedules.

For float32 keys, 8 bits with a float32 scale and bias for each 64 elements take 9 bits of 32, which
is the published factor 3.6; 4 bits take 5, a factor of 6.4. In float16, scales and biases are
smaller, too: 8.5 and 4.5 bits of 16, factors of 1.9 and 3.6.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance.core.trace import Trace


@dataclass(frozen=True)
class Shares:
    """Bytes of quantized caches divided by those of unquantized ones.

    Attributes:
        whole: the ratio over all layers.
        quantized: the ratio over the layers that were quantized.
    """

    whole: float
    quantized: float


def cache_shares(trace: Trace, plain: Trace) -> Shares | None:
    """Cache bytes of a run divided by those of an equal run without quantization.

    Uses the step with the most unquantized bytes.

    Returns: ``None`` if the engine does not report bytes, or nothing was quantized by then.
    """
    pairs = [
        (mine.layers, theirs.layers)
        for mine, theirs in zip(trace.steps, plain.steps, strict=False)
        if mine.layers and len(mine.layers) == len(theirs.layers)
    ]
    if not pairs:
        return None
    mine, theirs = max(pairs, key=lambda pair: sum(layer.nbytes for layer in pair[1]))
    before = [layer.nbytes for layer in theirs]
    after = [layer.nbytes for layer in mine]
    chosen = [index for index, layer in enumerate(mine) if layer.quantized]
    base = sum(before[index] for index in chosen)
    if not base:
        return None
    return Shares(sum(after) / sum(before), sum(after[index] for index in chosen) / base)
