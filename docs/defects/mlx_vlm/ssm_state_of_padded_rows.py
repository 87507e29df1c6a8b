"""Mamba-2 layers take the state of a right-padded row at the padded end, or from stray memory.

ssm_attn (mlx_vlm/models/ssm.py): without ``lengths`` the new state is that of the last column (line
148); nemotron_h/language.py:156 never passes them. With ``lengths``, line 144 looks at column
min(lengths, 256) - 1 of a piece that may be narrower: past the end of the array. And line 160 lets
the state before the piece decay by all columns, padding included. Right padding comes from prefix
caching (mlx_vlm/generate/ar.py:2738) when prompts of unequal rests are prefilled together.
Fixed by ``lengths`` everywhere, columns limited to the piece, and no time step where nothing is.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.models.ssm import ssm_attn

HEADS, WIDTH, STATE, LONG, SHORT = 4, 8, 8, 8, 3


def main() -> int:
    mx.random.seed(0)
    x = mx.random.normal((2, LONG, HEADS, WIDTH))
    b, c = (mx.random.normal((2, LONG, 1, STATE)) for _ in range(2))
    dt = mx.random.normal((2, LONG, HEADS))
    before = mx.random.normal((2, HEADS, WIDTH, STATE))
    a_log, d, bias = mx.zeros(HEADS), mx.ones(HEADS), mx.zeros(HEADS)
    lengths = mx.array([LONG, SHORT])
    mask = mx.arange(LONG)[None] < lengths[:, None]

    def states(row: slice, columns: slice, **more: object) -> mx.array:
        parts = (x[row, columns], a_log, b[row, columns], c[row, columns], d, dt[row, columns])
        return ssm_attn(*parts, bias, before[row], **more)[1]

    alone = states(slice(1, 2), slice(0, SHORT))[0]
    both = slice(0, 2)
    whole = slice(0, LONG)
    cases = {
        "a mask alone": states(both, whole, mask=mask)[1],
        "a mask and lengths": states(both, whole, mask=mask, lengths=lengths)[1],
    }
    # The first piece of the long row: nothing is padded, yet ``lengths`` is more than its width.
    half = slice(0, LONG // 2)
    first = states(slice(0, 1), half)[0]
    piece = {"mask": mask[:1, half], "lengths": lengths[:1]}
    cases["a piece, mask and lengths"] = states(slice(0, 1), half, **piece)[0]
    print(f"mlx-vlm {version('mlx-vlm')}: the state after a row of {SHORT}, padded to {LONG}")
    worst = 0.0
    for what, got in cases.items():
        apart = mx.abs(got - (first if "piece" in what else alone)).max().item()
        worst = apart if apart != apart else max(worst, apart)
        print(f"{what}: {apart:.3g} from the same row alone")
    print("expected: 0 up to rounding")
    return 0 if worst < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
