"""generate_step's logits processors see one token of a prompt, BatchGenerator's all of it.

mlx_vlm/generate/ar.py:390 collects the tokens of each _step, but the pieces of a prompt go to the
model without _step (ar.py:495): a repetition penalty forgets all of the prompt but its last token.
Whether it does hangs on prefill_step_size, whose default makes pieces of every prompt. Mended by
collecting each piece's tokens in that loop, as mlx_lm/generate.py:451 does.
"""

import sys
from importlib.metadata import version
from types import SimpleNamespace

import mlx.core as mx
import mlx.nn as nn
from mlx_vlm.generate import ar
from mlx_vlm.models.base import LanguageModelOutput
from mlx_vlm.models.cache import KVCache

VOCAB, PROMPT = 16, (1, 2, 3, 4, 5, 6, 7)


class Flat(nn.Module):
    """A language model that finds all tokens equally likely; its one cache layer is fed zeros."""

    layers = (None,)

    def __call__(self, inputs, inputs_embeds=None, cache=None, **_):
        rows, length = inputs.shape
        if cache is not None:
            cache[0].update_and_fetch(*[mx.zeros((rows, 1, length, 8))] * 2)
        return LanguageModelOutput(logits=mx.zeros((rows, length, VOCAB)))

    def make_cache(self):
        return [KVCache()]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.language_model = Flat()
        self.config = SimpleNamespace(model_type="flat")

    def get_input_embeddings(self, input_ids, *_, **__):
        found = SimpleNamespace(inputs_embeds=mx.zeros((*input_ids.shape, 8)))
        found.to_dict = lambda: {"inputs_embeds": found.inputs_embeds}
        return found


def watching(seen: list[list[int]]):
    """A processor that changes nothing and notes the tokens it is given."""

    def process(tokens, logits):
        seen.append(tokens.tolist())
        return logits

    return process


def alone(size: int | None) -> list[int]:
    seen: list[list[int]] = []
    steps = ar.generate_step(
        mx.array([PROMPT]),
        Model(),
        None,
        None,
        max_tokens=1,
        logits_processors=[watching(seen)],
        prefill_step_size=size,
    )
    next(steps)
    return seen[0]


def batched() -> list[int]:
    seen: list[list[int]] = []
    stop = SimpleNamespace(add_eos_token_ids=lambda _=None: None)
    processor = SimpleNamespace(tokenizer=SimpleNamespace(stopping_criteria=stop))
    generator = ar.BatchGenerator(Flat(), processor, prefill_step_size=4)
    generator.insert(
        [list(PROMPT)],
        max_tokens=1,
        prompt_kwargs=[{"inputs_embeds": mx.zeros((1, len(PROMPT), 8))}],
        logits_processors=[[watching(seen)]],
    )
    while not seen:
        generator.next()
    generator.close()
    return seen[0]


def main() -> int:
    whole = list(PROMPT)
    default, pieces, one = alone(ar.DEFAULT_PREFILL_STEP_SIZE), alone(4), alone(None)
    print(f"mlx-vlm {version('mlx-vlm')}: what processors see before the first token of {whole}")
    print(f"BatchGenerator, pieces of 4: {batched()}; generate_step in one pass: {one}")
    print(f"generate_step, pieces of 4: expected the same, got {pieces}; by default: {default}")
    return 1 if pieces != whole or default != whole else 0


if __name__ == "__main__":
    sys.exit(main())
