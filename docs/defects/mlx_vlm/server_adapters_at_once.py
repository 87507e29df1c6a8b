"""mlx-vlm's server answers one of two clients that ask for adapters at once with the other's.

A request loads the model with its adapter (server/app.py:976), and generates later, in another
thread, by ``runtime.response_generator`` (server/openai.py:2108): the newest, which may be that of
a client that came in between. What loads a model is stood in for here.
"""

import asyncio
import importlib
import logging
import sys
from importlib.metadata import version
from types import SimpleNamespace

app = importlib.import_module("mlx_vlm.server.app")
openai = importlib.import_module("mlx_vlm.server.openai")


class Loaded:
    """Stands in for the thread that loads a model and generates; says which adapter it has."""

    def __init__(self, adapter_path, **_):
        self.adapter = adapter_path

    def wait_until_ready(self):
        return SimpleNamespace(), SimpleNamespace(), SimpleNamespace(model_type="llama")

    def stop_and_join(self):
        pass

    def validate_context_budget(self, *_, **__):
        pass

    def generate(self, *_, **__):
        raise ValueError(f"adapter {self.adapter}")


async def answer(adapter):
    """The adapter with which a client is answered."""
    body = {"model": "m", "adapter_path": adapter, "stream": True, "context_management": []}
    messages = [{"role": "user", "content": "x"}]
    request = openai.ChatRequest(**body, messages=messages)
    response = await openai.chat_completions_endpoint(request, SimpleNamespace(headers={}))
    await asyncio.sleep(0)  # another client's request is read
    return "".join([str(piece) async for piece in response.body_iterator])


async def both():
    return await asyncio.gather(answer("a"), answer("b"))


def main() -> int:
    logging.disable()  # the exception that says which adapter it was
    app.ResponseGenerator = Loaded
    app.is_image_generation_model = lambda _: False
    openai.apply_chat_template = lambda *_, **__: "x"
    got = asyncio.run(both())
    print(f"mlx-vlm {version('mlx-vlm')}: expected adapters a and b, got {got}")
    return int(not ("adapter a" in got[0] and "adapter b" in got[1]))


if __name__ == "__main__":
    sys.exit(main())
