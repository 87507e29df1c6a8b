"""dflash: a drafter's context of a shorter prompt begins with its padding.

_dflash_rounds_batch (mlx_vlm/speculative/dflash.py:505) hands each row of the padded batch to the
drafter with the hidden states of all columns. The padding's states become keys, and the row's
positions are shifted by their number; a row alone has neither. Tokens stay right, drafts are
wasted. Mended by cutting the padding off.
"""

import contextlib
import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.models.cache import BatchKVCache
from mlx_vlm.speculative.dflash import _dflash_rounds_batch

PADDING, COLUMNS = [3, 0], 5


class ReadError(Exception):
    """Raised when the drafter has what it is to read."""


class Drafter:
    """Notes how many hidden states each row's first draft is made from."""

    config = SimpleNamespace(target_layer_ids=[0], block_size=4)

    def __init__(self) -> None:
        self.read: list[int] = []

    def reset(self, model: object) -> None:
        pass

    def make_cache(self) -> list[object]:
        return []

    def draft_block(self, last: int, hidden: mx.array, *rest: object) -> mx.array:
        self.read.append(hidden.shape[1])
        if len(self.read) == len(PADDING):
            raise ReadError
        return mx.zeros((1, 3), mx.int32)


def main() -> int:
    drafter = Drafter()
    hidden = mx.zeros((len(PADDING), COLUMNS, 8))
    caches, first = [BatchKVCache(PADDING)], mx.array([1, 1])
    rounds = _dflash_rounds_batch(
        object(), drafter, caches, hidden, first_bonus=first, max_tokens=9, sampler=None
    )
    with contextlib.suppress(ReadError):
        next(rounds)
    wanted = [COLUMNS - padding for padding in PADDING]
    print(f"mlx-vlm {version('mlx-vlm')}: prompts of {wanted} tokens")
    print(f"hidden states that the drafter reads of each: {drafter.read}")
    print(f"expected: {wanted}")
    return 0 if drafter.read == wanted else 1


if __name__ == "__main__":
    sys.exit(main())
