"""BatchGenerator accepts sizes that can never make progress.

mlx_lm/generate.py:1552 checks nothing. With ``prefill_batch_size`` of 0 or less no request leaves
the queue (line 1832): ``next()`` returns two empty lists for ever, and ``batch_generate`` returns
empty answers as if it were done. With ``prefill_step_size=0`` (line 1873) ``next()`` reports
progress 0 for ever, so ``next_generated()`` and ``batch_generate`` never return. The server hands
on ``--prompt-concurrency`` and ``--prefill-step-size`` as they are. Mended by a ValueError.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.generate import BatchGenerator
from mlx_lm.models import qwen2

CALLS = 500
CONFIG = {
    "model_type": "qwen2",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
}


def stalls(model: qwen2.Model, sizes: dict[str, int]) -> bool:
    """Whether the sizes are accepted and a request of 3 tokens never ends."""
    try:
        generator = BatchGenerator(model, **sizes)
    except ValueError as error:
        print(f"{sizes}: refused: {error}")
        return False
    generator.insert([[5, 9, 33]], max_tokens=[2])
    tokens = reports = 0
    for _ in range(CALLS):
        prompt_responses, responses = generator.next()
        tokens, reports = tokens + len(responses), reports + len(prompt_responses)
    generator.close()
    print(f"{sizes}: accepted; {CALLS} calls of next(): {tokens} tokens, {reports} prompt reports")
    return tokens == 0


def main() -> int:
    mx.random.seed(0)
    model = qwen2.Model(qwen2.ModelArgs.from_dict(CONFIG))
    print(f"mlx-lm {version('mlx-lm')}; expected: ValueError, or 2 tokens")
    wrong = [
        {"completion_batch_size": 0, "prefill_batch_size": 0},
        {"prefill_batch_size": -1},
        {"prefill_step_size": 0},
    ]
    return 1 if sum(stalls(model, sizes) for sizes in wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
