"""Prefix caching beside another row: logits of a prompt with an image are taken at a wrong place.

Models that put many embeddings in place of one image token (llava_next, phi4mm, fastvlm) have
prompts of fewer ids than embeddings. Where a prefix is reused, _build_mixed_prompt_batch counts the
rest of each row and its padding in ids (mlx_vlm/generate/ar.py:2733), and PromptProcessingBatch
takes the logits after as many columns as these are (ar.py:2164): within what the image was made
into, or behind it but before the prompt's end. Fixed by counting both in embeddings.
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
IMAGE, SIZE = 63, 6  # the image's id, and the number of embeddings that it is made into
BEGIN = [5, 9, 33, IMAGE, 7, 21, 40, 2]
PROMPTS = [[*BEGIN, 17, 51], [*BEGIN, 12, 30, 44, 8]]


def answers(generator, prompts, embed):
    """Three tokens of each prompt, all prefilled together."""
    kwargs = [{"inputs_embeds": embed(prompt)} for prompt in prompts]
    uids = generator.insert(prompts, max_tokens=3, prompt_kwargs=kwargs)
    found = {uid: [] for uid in uids}
    while generator.has_work:
        for event in generator.next()[1]:
            found[event.uid].append(event.token)
    return [found[uid] for uid in uids]


def main() -> int:
    mx.random.seed(0)
    model = Model(ModelConfig.from_dict(CONFIG))
    mx.eval(model.parameters())
    picture = mx.random.normal((1, SIZE, 32))

    def embed(prompt):
        embeds = model.get_input_embeddings(mx.array([prompt]), None).inputs_embeds
        at = prompt.index(IMAGE)
        return mx.concatenate([embeds[:, :at], picture, embeds[:, at + 1 :]], axis=1)

    processor = MagicMock()
    processor.tokenizer.stopping_criteria.return_value = False

    def generator():
        manager = APCManager(num_blocks=32, block_size=4)
        return BatchGenerator(
            model.language_model, processor, apc_manager=manager, prefill_batch_size=2
        )

    print(
        f"mlx-vlm {version('mlx-vlm')}: two prompts of {[*map(len, PROMPTS)]} ids, {SIZE - 1} more"
    )
    alone = [answers(generator(), [prompt], embed)[0] for prompt in PROMPTS]
    kept = generator()
    answers(kept, PROMPTS[:1], embed)
    again = answers(kept, PROMPTS, embed)
    print(f"alone:                    {alone}")
    print(f"together, prefix reused:  {again}")
    print("expected: the same")
    return 0 if again == alone else 1


if __name__ == "__main__":
    sys.exit(main())
