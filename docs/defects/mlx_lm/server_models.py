"""mlx-lm's server sends an empty body for /v1/models where there is no cache of Hugging Face.

``handle_models_request`` sends the status 200, then looks through the cache (server.py:1839).
Without that folder, as on a machine on which nothing was downloaded yet, this raises: the local
model with which the server was started is not listed.
"""

import io
import os
import sys
import tempfile
from importlib.metadata import version
from types import SimpleNamespace

FOLDER = tempfile.mkdtemp()
os.environ["HF_HUB_CACHE"] = f"{FOLDER}/nothing"

from mlx_lm import server  # noqa: E402 - the place of the cache is read on import


def main() -> int:
    handler = object.__new__(server.APIHandler)
    handler.path, handler.created, handler.wfile = "/v1/models", 0, io.BytesIO()
    handler.response_generator = SimpleNamespace(cli_args=SimpleNamespace(model=FOLDER))
    handler._set_completion_headers = lambda status: None
    handler.end_headers = lambda: None
    try:
        handler.handle_models_request()
    except Exception as error:
        got = type(error).__name__
    else:
        got = handler.wfile.getvalue().decode()
    print(f"mlx-lm {version('mlx-lm')}: expected a list with {FOLDER}, got {got}")
    return 0 if FOLDER in got else 1


if __name__ == "__main__":
    sys.exit(main())
