"""A server on a tiny llama with random weights, started and asked over HTTP by scripts."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

VOCABULARY = 96
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCABULARY + 1,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
OFFLINE = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1"}


def write(folder):
    """Config, weights of N(0, 2 / fan-in), and a tokenizer of the words t0, t1, ..."""
    rng = np.random.default_rng(0)
    model = llama.Model(llama.ModelArgs.from_dict(CONFIG))

    def drawn(shape):
        if len(shape) == 1:
            return mx.ones(shape)
        return mx.array(rng.normal(0, (2 / shape[-1]) ** 0.5, shape).astype(np.float32))

    weights = {name: drawn(value.shape) for name, value in tree_flatten(model.parameters())}
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(CONFIG))
    words = {f"t{n}": n for n in range(VOCABULARY)} | {"<end>": VOCABULARY}
    tokenizer = Tokenizer(WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE}
    text = json.dumps(named | {"eos_token": "<end>", "pad_token": "t0", "unk_token": "t0"})
    (folder / "tokenizer_config.json").write_text(text)


@contextlib.contextmanager
def served(command, **environment):
    """A client of a running server, which ``command`` names: a function of folder and port."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        write(Path(name))
        with (Path(name) / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command(name, str(port))],
                env=os.environ | OFFLINE | environment, stdout=log, stderr=log,
            )  # fmt: skip
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
        try:
            for _ in range(300):
                with contextlib.suppress(httpx.HTTPError):
                    if client.get("/health").status_code == 200:
                        break
                time.sleep(0.3)
                if process.poll() is not None:
                    raise SystemExit((Path(name) / "log").read_text()[-2000:])
            client.model = name
            yield client
        finally:
            process.terminate()
            process.wait(20)


def prompt(count, seed):
    return " ".join(f"t{n}" for n in np.random.default_rng(seed).integers(1, VOCABULARY, count))


def asked(client, text, *, chat=True, stream=False, **more):
    """The text of an answer, its reason to end, usage, and the error if there was one."""
    body = {"model": client.model, "temperature": 0, "max_tokens": 8, "stream": stream} | more
    body |= {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
    if stream:
        body["stream_options"] = {"include_usage": True}
    place = "/v1/chat/completions" if chat else "/v1/completions"
    if not stream:
        got = client.post(place, json=body).json()
        choice = (got.get("choices") or [{}])[0]
        said = choice.get("message", {}).get("content") if chat else choice.get("text")
        return said, choice.get("finish_reason"), got.get("usage"), got.get("error")
    said, reason, usage, error = "", None, None, None
    with client.stream("POST", place, json=body) as lines:
        for line in lines.iter_lines():
            if not line.startswith("data: ") or line.endswith("[DONE]"):
                continue
            piece = json.loads(line[6:])
            error, usage = piece.get("error") or error, piece.get("usage") or usage
            for choice in piece.get("choices") or ():
                said += (choice["delta"].get("content") if chat else choice.get("text")) or ""
                reason = choice.get("finish_reason") or reason
    return said, reason, usage, error


def verdict(what, right, got):
    """Print both; exit 1 where they differ, as this is what the script is to show."""
    print(f"{what}\n  right: {right}\n  got:   {got}")
    raise SystemExit(f"DEFECT: {what}" if right != got else 0)
