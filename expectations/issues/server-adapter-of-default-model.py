import sys
from argparse import Namespace

from mlx_lm import server


class Provider(server.ModelProvider):
    def _load(self, model, adapter=None, draft=None):  # notes what it would load
        self.model_key = (model, adapter, draft)


# python -m mlx_lm.server --model path/to/model --adapter-path path/to/adapter
line = {"model": "path/to/model", "adapter_path": "path/to/adapter", "draft_model": None}
more = {"chat_template": "", "pipeline": False, "trust_remote_code": False}
provider = Provider(Namespace(**line, **more))
adapters = []
for model in ("default_model", "path/to/model"):  # the field "model" of a request
    provider.load(model)
    adapters.append(provider.model_key[1])
    print(f'"model": "{model}": answered with adapter', adapters[-1])
sys.exit(adapters[0] != adapters[1])
