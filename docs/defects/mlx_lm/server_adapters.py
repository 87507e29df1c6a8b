"""mlx_lm.server ignores the adapter of a request that names no model.

Such a request is for the model of the command line. server.py:478 looks its adapter up by the
model's name, ``_adapter_map.get(model_path, adapter_path)``, where "default_model" always is: that
of the command line, or None, takes the place of the request's own "adapters". With the name of the
same model, they are loaded.
"""

import sys
from argparse import Namespace
from importlib.metadata import version

from mlx_lm import server


class Named(server.ModelProvider):
    """Says what it would load."""

    def _load(self, model, adapter=None, draft=None):
        self.model_key = (model, adapter, draft)


def main() -> int:
    options = {"model": "m", "adapter_path": None, "draft_model": None, "chat_template": ""}
    provider = Named(Namespace(**options, pipeline=False, trust_remote_code=False))
    wrong = []
    for model in ("m", "default_model"):  # the second if a request names none
        provider.load(model, "a")
        print(
            f"mlx-lm {version('mlx-lm')}, {model}: expected adapter a, got {provider.model_key[1]}"
        )
        wrong.append(provider.model_key[1] != "a")
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
