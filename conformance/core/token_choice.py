"""How a token is chosen, as plain data: samplers and logits processors."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np


class Sampler(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to choose a token: a ``kind`` that the library plugin defines, and its arguments."""

    kind: str
    args: dict[str, Any] = {}


class Processor(msgspec.Struct, frozen=True, omit_defaults=True):
    """A logits processor: a ``kind`` that the library plugin defines, and its arguments."""

    kind: str
    args: dict[str, Any] = {}


RANDOM = "random"
"""The kind of sampler that is the library's own, with the library's own random numbers.

No single stream draws the same tokens, so the oracle follows the tokens that a row has drawn.
"""


BY_POSITION = "by_position"
"""The kind of sampler that takes a token of another rank at each position of a row's output."""


OF_SERVER = "server"
"""The kind of sampler whose arguments are a server's own fields; only it knows the right answer."""


def random_scores(seed: int, call: int, vocab: int) -> np.ndarray:
    """What a ``seeded`` sampler adds to the logprobs before it takes the largest, ``[vocab]``.

    Gumbel noise, so that each token is drawn with its probability; the same in every batch.
    """
    return np.random.default_rng((seed, call)).gumbel(size=vocab).astype(np.float32)
