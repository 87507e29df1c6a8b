"""Requests after which mlx_lm.server is wrong or serves nobody; it is started on a tiny model.

- ``"stop": 5`` (a number): server.py:836 makes the stop sequences outside of any ``try``; the
  generation thread ends, and every later request gets HTTP 404.
- an empty text to complete: insert_segments raises (generate.py), with the same end.
- ``top_logprobs`` of 3: server.py:1470 shows the first of an unsorted partition in place of the
  token that was generated.
- ``"logprobs": true`` alone: server.py:1476 leaves out each entry's ``token``.
- ``"logprobs": true`` of a stream: server.py:1651 makes its pieces without them (mlx-lm #1630).
- ``"stream_options": {}``: server.py:1684 takes "include_usage" for granted; the stream ends
  without its last piece.
- ``"logprobs": 1`` of a text to complete: server.py:1394 wants true or false; HTTP 400.
- ``"xtc_probability": 1``: server.py:1396 wants a float of Python; HTTP 400.
- a body that is no UTF-8: server.py:1275; the connection is closed without an answer.
- a number as content: server.py:238 leaves it as it is; it is accepted.

Each is asked of a server of its own. Exit code 1 while any of them is wrong.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models import llama

CONFIG = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "rms_norm_eps": 1e-5,
    "vocab_size": 64,
}
CHAT = {"messages": [{"role": "user", "content": "t5 t9 t33"}], "max_tokens": 6, "temperature": 0}


def write(folder):
    mx.random.seed(0)
    model = llama.Model(llama.ModelArgs.from_dict(CONFIG))
    mx.save_safetensors(f"{folder}/model.safetensors", dict(tree_flatten(model.parameters())))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    words = {f"t{i}": i for i in range(64)} | {"</s>": 64}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "t0"}
    splitter = {"type": "WhitespaceSplit"}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": splitter, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    template = "{%- for m in messages -%}{{ m.content }}{%- endfor -%}"
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**kind, "chat_template": template}))


class Server:
    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "mlx_lm", "server", "--model", folder, "--port", str(port)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def __enter__(self):
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=5)
            except OSError:
                time.sleep(0.1)
            else:
                return self
        raise SystemExit(2)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, body, path="chat/completions"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            request = urllib.request.Request(f"{self.url}/v1/{path}", data)
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, repr(error)


def serves_nobody_after(server, body, path):
    server.ask(body, path)
    status, text = server.ask(CHAT)
    return status != 200, f"a plain request afterwards: HTTP {status} {text[:60]}"


def shows_other_tokens(server):
    _, text = server.ask({**CHAT, "logprobs": True, "top_logprobs": 3})
    choice = json.loads(text)["choices"][0]
    said = [entry["token"] for entry in choice["logprobs"]["content"]]
    return said != choice["message"]["content"].split(), f"{choice['message']['content']!r}: {said}"


def leaves_out_tokens(server):
    _, text = server.ask({**CHAT, "logprobs": True})
    entry = json.loads(text)["choices"][0]["logprobs"]["content"][0]
    return "token" not in entry, f"an entry has {sorted(entry)}"


def drops_logprobs(server):
    _, text = server.ask({**CHAT, "logprobs": True, "stream": True})
    return '"logprobs"' not in text, f"a stream of {len(text)} characters"


def cuts_stream(server):
    _, text = server.ask({**CHAT, "stream": True, "stream_options": {}})
    return "[DONE]" not in text, f"the stream ends with {text[-40:]!r}"


def refuses_numbers(server):
    body = {"prompt": "t5 t9 t33", "max_tokens": 2, "temperature": 0, "logprobs": 1}
    status, text = server.ask(body, "completions")
    return status != 200, f"HTTP {status} {text[:60]}"


def refuses_whole_numbers(server):
    status, text = server.ask({**CHAT, "xtc_probability": 1})
    return status != 200, f"HTTP {status} {text[:60]}"


def is_not_refused(body):
    def shown(server):
        status, text = server.ask(body)
        return status not in range(400, 500), f"HTTP {status} {text[:60]}"

    return shown


NUMBER = {**CHAT, "messages": [{"role": "user", "content": 5}]}
DEFECTS = {
    "a number as stop": lambda s: serves_nobody_after(s, {**CHAT, "stop": 5}, "chat/completions"),
    "an empty text": lambda s: serves_nobody_after(s, {"prompt": ""}, "completions"),
    "top_logprobs": shows_other_tokens,
    "logprobs without likeliest tokens": leaves_out_tokens,
    "logprobs of a stream": drops_logprobs,
    "empty stream_options": cuts_stream,
    "logprobs of a text": refuses_numbers,
    "a whole number": refuses_whole_numbers,
    "no UTF-8": is_not_refused(b'{"model": "\xff\xfe"}'),
    "a number as content": is_not_refused(NUMBER),
}


def main() -> int:
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        print(f"mlx-lm {version('mlx-lm')}")
        for defect, shown in DEFECTS.items():
            with Server(name) as server:
                there, evidence = shown(server)
            wrong.append(there)
            print(f"{defect}: {'wrong' if there else 'right'}: {evidence}")
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
