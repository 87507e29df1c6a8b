"""mlx-vlm's server finds kept prefixes on disk after a model's weights were replaced at their path.

The names of the files have a fingerprint of the weights (mlx_vlm/apc.py:253, apc_disk_namespace),
which mlx_vlm/server/app.py:919 does not pass: answers continue from the older weights' prefixes.
Fixed by passing one, as of the files' sizes and times.
"""

import json
import sys
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import mlx.core as mx

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}


class NamedError(Exception):
    """Ends the loading of a model once its files' name is known."""


def main() -> int:
    names = []

    def from_env(model_namespace, **_options):
        names.append(model_namespace)
        raise NamedError

    app = import_module("mlx_vlm.server.app")
    app._apc.from_env = from_env
    with TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG))
        for weights in (mx.zeros((4, 4)), mx.ones((8, 8))):
            mx.save_safetensors(f"{folder}/model.safetensors", {"weights": weights})
            with suppress(NamedError):
                app.get_cached_model(folder)
    older, newer = names
    print(f"mlx-vlm {version('mlx-vlm')}: expected other names of files for other weights")
    print(f"older {Path(older).name}, newer {Path(newer).name}")
    return 1 if older == newer else 0


if __name__ == "__main__":
    sys.exit(main())
