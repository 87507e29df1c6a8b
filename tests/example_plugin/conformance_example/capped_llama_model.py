"""The model of ``capped_llama.json``, in the form in which mlx-lm reads a ``model_file``."""

from dataclasses import dataclass

import mlx.core as mx
from mlx_lm.models import llama


@dataclass
class ModelArgs(llama.ModelArgs):
    """A llama's, and the bound of the logits."""

    logit_cap: float = 30.0


class Model(llama.Model):
    """A llama whose logits stay within plus and minus ``logit_cap``."""

    def __call__(self, inputs, cache=None, **kwargs):
        """Logits ``[batch, length, vocab]``."""
        cap = self.args.logit_cap
        return mx.tanh(super().__call__(inputs, cache=cache, **kwargs) / cap) * cap
