import importlib
import sys
from types import SimpleNamespace

app = importlib.import_module("mlx_vlm.server.app")


class Loaded:  # in place of the thread that loads a model with an adapter and generates
    def __init__(self, adapter_path, **_):
        self.adapter = adapter_path

    def wait_until_ready(self):
        return SimpleNamespace(), self.adapter, None

    def stop_and_join(self):
        pass


app.ResponseGenerator, app.is_image_generation_model = Loaded, lambda _: False
app.get_cached_model("path/to/model", None)  # the server starts without an adapter
app.get_cached_model("path/to/model", "path/to/adapter")  # a client asks for one
answered = app.get_cached_model("path/to/model")[1]  # another client names none
print('a request without "adapter_path" is answered with adapter', answered)
sys.exit(answered is not None)
