"""With a draft model mlx-lm's processors are not shown the prompt, except its last token.

mlx_lm/generate.py (speculative_generate_step) begins the history with the tokens of the first step
that predicts; generate_step collects those of the prompt's pieces, too. A repetition penalty then
ignores the prompt. Fixed by beginning with the prompt without its last token.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.generate import generate_step, speculative_generate_step
from mlx_lm.models.llama import Model, ModelArgs

PROMPT = [5, 2, 7, 11]


def main() -> int:
    args = ModelArgs("llama", 32, 1, 32, 2, 1e-5, 31)
    model, shown = Model(args), []

    def look(tokens, logits):
        shown.append(tokens.tolist())
        return logits

    prompt = mx.array(PROMPT)
    list(generate_step(prompt, model, max_tokens=1, logits_processors=[look]))
    alone = shown[0]
    shown.clear()
    list(speculative_generate_step(prompt, model, model, max_tokens=2, logits_processors=[look]))
    print(f"mlx-lm {version('mlx-lm')}: expected {alone} to be shown first, as without drafts")
    print(f"shown with drafts: {shown[0]}")
    return 0 if shown[0] == alone else 1


if __name__ == "__main__":
    sys.exit(main())
