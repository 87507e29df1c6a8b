import asyncio
import importlib
import logging
import re
import sys
from types import SimpleNamespace

app = importlib.import_module("mlx_vlm.server.app")
openai = importlib.import_module("mlx_vlm.server.openai")


class Loaded:  # in place of the thread that loads a model with an adapter and generates
    def __init__(self, adapter_path, **_):
        self.adapter = adapter_path

    def wait_until_ready(self):
        return SimpleNamespace(), SimpleNamespace(), SimpleNamespace(model_type="llama")

    def stop_and_join(self):
        pass

    def validate_context_budget(self, *_, **__):
        pass

    def generate(self, *_, **__):
        raise ValueError(f"<{self.adapter}>")


async def answer(adapter):
    body = {"model": "m", "adapter_path": adapter, "stream": True, "context_management": []}
    request = openai.ChatRequest(**body, messages=[{"role": "user", "content": "x"}])
    response = await openai.chat_completions_endpoint(request, SimpleNamespace(headers={}))
    await asyncio.sleep(0)  # another client's request is read
    return re.search("<.>", "".join([str(piece) async for piece in response.body_iterator]))[0]


async def both():
    return await asyncio.gather(answer("a"), answer("b"))


logging.disable()  # the exceptions that say which adapter it was
app.ResponseGenerator, app.is_image_generation_model = Loaded, lambda _: False
openai.apply_chat_template = lambda *_, **__: "x"
answered = asyncio.run(both())
print("two clients ask at once for the adapters a and b, and are answered with", answered)
sys.exit(answered != ["<a>", "<b>"])
