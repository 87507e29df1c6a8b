"""Requests to which mlx_vlm.server gives wrong answers; it is started on a tiny model.

- ``"stop": "t7"``: a chat has no such field (server/schemas.py:928): the answer goes on.
- a sampled request and a plain one together: all rows of a batch get the sampler of the one that
  came first (server/generation.py:1796).
- ``"logprobs": true`` beside a request without: the generator of the batch computes none, as the
  one that came first asks for none (server/generation.py:1805), and each token gets 0.0.
- two equal sampled requests without a seed: both get the seed 0 (server/schemas.py:837), and the
  same answer.
- seeds of 3 and of 2**32 + 3: the last 32 bits of a seed are used (server/generation.py:139), and
  both get the same answer.
- ``"min_p": 1.0``: no sampler gets it (server/generation.py:1512).
- ``"max_completion_tokens": 4`` in place of ``max_tokens``: nobody reads it
  (server/request_normalization.py:201), and the answer goes on to the default limit.
- ``"logprobs": true`` while another client asks for another model: the tokens beside the rest of
  the logprobs are named by that model's tokenizer (server/openai.py:2171).
- ``/v1/messages`` with a prompt that begins the reasoning, which the limit cuts: in one piece it is
  the answer's text (server/anthropic.py:1008), in a stream it is reasoning.
- another model's name: the loaded model is let go before it is known whether there is such a model
  (server/app.py:639), and a stream with logprobs breaks off (server/openai.py:2171).
- ``"max_tokens": -1``, ``"temperature": -1``, ``"top_p": 1.5``: accepted (server/schemas.py:822).
- ``"stream": "yes"``: taken for true (server/schemas.py:893).
- ``"logit_bias": {"1": "much"}``: HTTP 500 (server/request_normalization.py:208).
- an image that is none: HTTP 500 (server/openai.py:2775).

Exit code 1 while any of them is wrong.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_vlm.models import qwen2_vl
from mlx_vlm.utils import update_module_configs

SPECIAL = {"<|image_pad|>": 60, "<|video_pad|>": 61, "<|vision_start|>": 62, "<|vision_end|>": 63}
CONFIG = {
    "model_type": "qwen2_vl",
    "image_token_id": 60,
    "video_token_id": 61,
    "vision_start_token_id": 62,
    "vision_end_token_id": 63,
    "vocab_size": 64,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096,
    "rope_theta": 1000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]},
    "vision_config": {
        "model_type": "qwen2_vl",
        "depth": 1,
        "embed_dim": 32,
        "hidden_size": 64,
        "num_heads": 2,
        "mlp_ratio": 2,
        "patch_size": 4,
        "spatial_patch_size": 4,
        "image_size": 32,
    },
    "eos_token_id": 64,
}
PIXELS = {"patch_size": 4, "temporal_patch_size": 2, "merge_size": 2, "min_pixels": 64}
PART = "{%- if part.type == 'text' -%}{{ part.text }}{%- else -%} <|image_pad|> {%- endif -%}"
TEMPLATE = (
    "{%- for m in messages -%}{%- if m.content is string -%}{{ m.content }}{%- else -%}"
    "{%- for part in m.content -%}" + PART + "{%- endfor -%}{%- endif -%}{%- endfor -%}"
)


def write(folder, first=0):
    mx.random.seed(first)
    config = {**CONFIG, "text_config": {}}
    made = update_module_configs(
        qwen2_vl.ModelConfig.from_dict(config), qwen2_vl, config, ["text", "vision"]
    )
    weights = dict(tree_flatten(qwen2_vl.Model(made).parameters()))
    mx.save_safetensors(f"{folder}/model.safetensors", weights)
    words = {f"t{(first + i) % 60}": i for i in range(60)} | SPECIAL | {"</s>": 64}
    added = [
        {
            "id": token,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for text, token in words.items()
        if token >= 60
    ]
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "t0"},
    }
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "t0"}
    files = {
        "config.json": CONFIG,
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": {**kind, "chat_template": TEMPLATE},
        "preprocessor_config.json": {**PIXELS, "max_pixels": 4096},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


class Server:
    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url, self.model = f"http://127.0.0.1:{port}", folder
        place = ["--host", "127.0.0.1", "--port", str(port)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlx_vlm.server", "--model", folder, *place],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )

    def __enter__(self):
        for _ in range(1800):
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=5)
            except OSError:
                time.sleep(0.1)
            else:
                return self
        self.__exit__()
        raise SystemExit(2)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, text="t5 t9 t33", seen=None, path="chat/completions", **fields):
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": 8,
            "temperature": 0.0,
            "context_management": [],
            **fields,
        }
        body = {name: value for name, value in body.items() if value is not None}
        data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        asked = urllib.request.Request(f"{self.url}/v1/{path}", data, headers)
        try:
            with urllib.request.urlopen(asked, timeout=120) as answer:
                found = b""
                for line in answer:
                    found += line
                    if seen is not None:
                        seen.set()
                return answer.status, found.decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, repr(error)

    def words(self, **fields):
        _, text = self.ask(**fields)
        return json.loads(text)["choices"][0]["message"]["content"].split()

    def beside(self, **fields):
        """Begin a long stream; gives a function that waits for all of it."""
        found, seen = [], threading.Event()

        def read():
            found.append(self.ask(text="t3 t4", seen=seen, stream=True, max_tokens=1500, **fields))

        thread = threading.Thread(target=read)
        thread.start()
        seen.wait(120)

        def rest():
            thread.join()
            return found[0][1]

        return rest


def goes_on(server):
    word = server.words()[3]
    found = server.words(stop=word)
    return word in found, f"with stop {word!r}: {' '.join(found)}"


def has_anothers_sampler(server):
    alone = server.words()
    rest = server.beside(temperature=1.5, seed=1)
    found = server.words()
    rest()
    return found != alone, f"alone {' '.join(alone)}, beside a sampled one {' '.join(found)}"


def lacks_logprobs(server):
    def logprobs():
        _, text = server.ask(logprobs=True)
        return [entry["logprob"] for entry in json.loads(text)["choices"][0]["logprobs"]["content"]]

    alone = logprobs()
    rest = server.beside()
    found = logprobs()
    rest()
    return not any(found) and any(alone), f"alone {alone[:3]}, beside one without {found[:3]}"


def draws_alike(server):
    one, other = (server.words(temperature=2.0, max_tokens=24) for _ in range(2))
    return one == other, f"{' '.join(one[:6])}, {' '.join(other[:6])}"


def draws_alike_by_seed(server):
    seeds = (3, 2**32 + 3)
    one, other = (server.words(temperature=2.0, max_tokens=24, seed=seed) for seed in seeds)
    return one == other, f"{' '.join(one[:6])}, {' '.join(other[:6])}"


def draws_any(server):
    alone, found = server.words(), server.words(temperature=2.0, min_p=1.0)
    return found != alone, f"greedy {' '.join(alone)}, with a min_p of 1 {' '.join(found)}"


def has_no_limit(server):
    body = {"max_completion_tokens": 4, "max_tokens": None}
    count = len(server.words(**body))
    return count != 4, f"{count} tokens, of a limit of 4"


def names_by_another(server):
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), first=7)
        rest = server.beside(logprobs=True)
        server.ask(model=name)
        text = rest()
    pieces = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    parts = [choice for piece in pieces for choice in piece["choices"] if choice.get("logprobs")]
    said = [part["delta"]["content"].strip() for part in parts]
    named = [part["logprobs"]["content"][0]["token"].strip() for part in parts]
    last = f"{' '.join(said[-3:])!r} is named {' '.join(named[-3:])!r}"
    return said != named, f"the end of the answer, {last}"


def has_reasoning_as_text(server):
    markers = {"thinking_start_token": "t33", "thinking_end_token": "</over>"}
    kinds = []
    for streamed in (True, False):
        _, text = server.ask(
            path="messages",
            context_management=None,
            enable_thinking=True,
            stream=streamed,
            **markers,
        )
        kinds.append("thinking" if '"thinking"' in text else "text")
    return kinds[0] != kinds[1], f"a stream has {kinds[0]}, an answer in one piece {kinds[1]}"


def breaks_off(server):
    rest = server.beside(logprobs=True)
    status, _ = server.ask(model="/no/such/model")
    text = rest()
    return "[DONE]" not in text, f"HTTP {status}; the other answer ends with {text[-60:]!r}"


def accepts(**fields):
    def shown(server):
        status, text = server.ask(**fields)
        return status not in range(400, 500), f"HTTP {status}: {text[:60]!r}"

    return shown


IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
DEFECTS = {
    "stop": goes_on,
    "a sampler beside": has_anothers_sampler,
    "logprobs beside a request without": lacks_logprobs,
    "equal requests without a seed": draws_alike,
    "seeds that differ by 2**32": draws_alike_by_seed,
    "min_p": draws_any,
    "max_completion_tokens": has_no_limit,
    "max_tokens of -1": accepts(max_tokens=-1),
    "a negative temperature": accepts(temperature=-1.0),
    "top_p above 1": accepts(top_p=1.5),
    "stream of no truth value": accepts(stream="yes"),
    "a bias that is no number": accepts(logit_bias={"1": "much"}),
    "an image that is none": accepts(text=IMAGE),
    "reasoning of a message that the limit cuts": has_reasoning_as_text,
    "logprobs while another model is loaded": names_by_another,
    "another model's name": breaks_off,  # the last, as the model is gone
}


def main() -> int:
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        print(f"mlx-vlm {version('mlx-vlm')}")
        with Server(name) as server:
            for defect, shown in DEFECTS.items():
                there, evidence = shown(server)
                wrong.append(there)
                print(f"{defect}: {'wrong' if there else 'right'}: {evidence}", flush=True)
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
