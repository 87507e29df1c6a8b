"""mlx_lm.server leaves out the adapter of --adapter-path where a request names the model.

server.py:478 looks an adapter up by the model's name, and keeps that of the command line for the
name "default_model" alone. A request that names the same model by its path, as clients of the API
must name one, is answered by the model without the adapter, which is loaded for it.
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
    options = {"model": "m", "adapter_path": "a", "draft_model": None, "chat_template": ""}
    provider = Named(Namespace(**options, pipeline=False, trust_remote_code=False))
    wrong = []
    for model in ("default_model", "m"):
        provider.load(model)
        print(
            f"mlx-lm {version('mlx-lm')}, {model}: expected adapter a, got {provider.model_key[1]}"
        )
        wrong.append(provider.model_key[1] != "a")
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
