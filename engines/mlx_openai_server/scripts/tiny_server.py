"""``mlx-openai-server launch`` on the tiny llama of ``engines/tiny_served.py``."""

import functools
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

import tiny_served
from tiny_served import asked, prompt, verdict

__all__ = ["asked", "prompt", "served", "verdict"]


def command(folder, port):
    place = ["--model-path", folder, "--model-type", "lm", "--host", "127.0.0.1", "--port", port]
    return ["app.main", *place, "--no-log-file"]


served = functools.partial(tiny_served.served, command)
