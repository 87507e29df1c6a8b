"""Prefix caching: the logits processors of a row that reuses a prefix do not see the prefix.

PromptProcessingBatch makes a row's history of the ids that it is given
(mlx_vlm/generate/ar.py:1812). Where a prefix is reused these are the rest of the prompt alone
(ar.py:2857): a repetition penalty counts other tokens than for the same prompt without a prefix.
Fixed by the ids of apc_meta, which has the whole prompt.
"""

import sys
from importlib.metadata import version
from unittest.mock import MagicMock

import mlx.core as mx
from mlx_vlm.apc import APCManager
from mlx_vlm.generate.ar import BatchGenerator
from mlx_vlm.models.llama.config import ModelConfig
from mlx_vlm.models.llama.llama import Model

CONFIG = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5,
    "vocab_size": 64,
}
PROMPT = [5, 9, 33, 7, 21, 40, 2, 17, 51, 12]


def seen(generator, model):
    """The tokens that a logits processor of the prompt gets at its first call."""
    calls = []

    def processor(tokens, logits):
        calls.append(tokens.tolist())
        return logits

    ids = mx.array([PROMPT])
    embedded = model.get_input_embeddings(ids, None).to_dict()
    kwargs = {name: value for name, value in embedded.items() if value is not None}
    generator.insert(
        [PROMPT], max_tokens=1, prompt_kwargs=[kwargs], logits_processors=[[processor]]
    )
    while generator.has_work:
        generator.next()
    return calls[0]


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(CONFIG))
    processor = MagicMock()
    processor.tokenizer.stopping_criteria.return_value = False
    manager = APCManager(num_blocks=16, block_size=4)
    generator = BatchGenerator(model.language_model, processor, apc_manager=manager)
    print(f"mlx-vlm {version('mlx-vlm')}: one prompt of {len(PROMPT)} tokens, twice")
    cold, warm = seen(generator, model), seen(generator, model)
    print(f"its processor sees {cold}, then {warm}")
    print("expected: the whole prompt both times")
    return 0 if warm == cold else 1


if __name__ == "__main__":
    sys.exit(main())
