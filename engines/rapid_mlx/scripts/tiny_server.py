"""``rapid-mlx serve`` on the tiny llama of ``engines/tiny_served.py``."""

import functools
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

import tiny_served
from tiny_served import asked, prompt, verdict

__all__ = ["asked", "prompt", "served", "verdict"]


def command(folder, port):
    place = ["serve", folder, "--host", "127.0.0.1", "--port", port]
    return ["rapid_mlx.cli", *place, "--yes", "--disable-model-downloads"]


served = functools.partial(tiny_served.served, command, RAPID_MLX_TELEMETRY="0")
