"""eagle3: the drafter reads one column of padding in each row that is padded.

Eagle3DraftModel.reset (mlx_vlm/speculative/drafters/eagle3/eagle3.py:248) gives its cache one
column of padding less than the prompts have, as its tokens are shifted by one. But they are
shifted *and* the first real token follows: row and column of a token and its hidden state stay,
and column ``padding - 1`` has the hidden state of padding. Alone the row has no such key. Tokens
stay right, drafts are wasted. Fixed by passing the padding on.
"""

import sys
from importlib.metadata import version

from mlx_vlm.speculative.drafters.eagle3.eagle3 import Eagle3DraftModel

PADDING = [3, 0]


class Drafter:
    """What ``reset`` needs of a drafter."""

    def bind(self, target: object) -> None:
        pass

    def make_cache(self, left_padding: list[int]) -> list[int]:
        self.padding = left_padding
        return []


def main() -> int:
    drafter = Drafter()
    Eagle3DraftModel.reset(drafter, None, left_padding=PADDING)
    print(f"mlx-vlm {version('mlx-vlm')}: prompts with {PADDING} columns of padding")
    print(f"the drafter's cache masks {drafter.padding}")
    print(f"expected: {PADDING}, as each prompt has as many tokens in it as in the model's caches")
    return 0 if drafter.padding == PADDING else 1


if __name__ == "__main__":
    sys.exit(main())
