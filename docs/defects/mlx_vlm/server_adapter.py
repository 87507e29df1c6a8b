"""mlx-vlm's server answers a request that names no adapter with another client's.

Without "adapter_path", server/openai.py:190 passes a mark on, for which server/app.py:614 takes
the adapter with which the model was loaded last: that of the request before, and not the one,
or none, with which the server was started. What loads a model is stood in for here.
"""

import importlib
import sys
from importlib.metadata import version
from types import SimpleNamespace

app = importlib.import_module("mlx_vlm.server.app")


class Loaded:
    """Stands in for the thread that loads a model and generates."""

    def __init__(self, adapter_path, **_):
        self.adapter = adapter_path

    def wait_until_ready(self):
        return SimpleNamespace(), self.adapter, None

    def stop_and_join(self):
        pass


def main() -> int:
    app.ResponseGenerator = Loaded
    app.is_image_generation_model = lambda _: False
    for adapter in (None, "a"):  # at the start, and as another client asks
        app.get_cached_model("m", adapter)
    got = app.get_cached_model("m")[1]
    print(f"mlx-vlm {version('mlx-vlm')}: expected no adapter, got {got}")
    return int(got is not None)


if __name__ == "__main__":
    sys.exit(main())
