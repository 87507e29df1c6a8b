"""mlx_vlm.server goes on from what it kept of a picture for another one with the same patches.

With APC_ENABLED=1, what is kept of a prompt is found by its tokens and a hash of its pixel_values
(server/generation.py:1226). A wide picture of one colour has the same patches as a high one, and as
many tokens; they differ by image_grid_thw alone, which is not in the hash. Models with M-RoPE whose
caches are kept as a whole, such as qwen3_5, then answer for the first picture.

Exit code 1 while the keys are the same.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx_vlm.server import generation

TOKENS = mx.array([[1, 2, 60, 60, 3, 4]])
PATCHES = mx.ones((8, 48))
GRIDS = {"wide": mx.array([[1, 2, 4]]), "high": mx.array([[1, 4, 2]])}


class Queue:
    """Takes a request as the generation thread does, and answers nothing."""

    def put(self, request):
        self.last = request
        request.rqueue.put(generation.GenerationContext(uid=0, prompt_tokens=TOKENS.size))


class Server(generation.ResponseGenerator):
    """The server's own code up to its queue, without a model."""

    def __init__(self):
        self.requests, self.apc_mode = Queue(), "checkpoint"
        self.model = self.processor = self.draft_model = None

    def wait_until_ready(self, timeout=None):
        pass

    def _preprocess_request(self, prompt, *_, **__):
        return {"input_ids": TOKENS, "pixel_values": PATCHES, "image_grid_thw": GRIDS[prompt]}


def main() -> int:
    server, keys = Server(), {}
    for name in GRIDS:
        server.generate(name, images=[name])
        keys[name] = server.requests.last.apc_semantic_hash
    same = len(set(keys.values())) < len(keys)
    print(f"mlx-vlm {version('mlx-vlm')}: keys {keys}: {'wrong' if same else 'right'}")
    return int(same)


if __name__ == "__main__":
    sys.exit(main())
