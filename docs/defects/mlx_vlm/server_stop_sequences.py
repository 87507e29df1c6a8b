"""mlx-vlm's /v1/messages looks for stop sequences only when an answer has come to its limit.

``stop_sequences`` are no argument of the generation. They are looked for in the finished text
(server/anthropic.py:442): an answer in one piece is cut there, and its output_tokens are those of
the whole text (server/anthropic.py:1053); a stream has sent all of it (server/anthropic.py:845).
"""

import sys
from importlib.metadata import version

from mlx_vlm.server.generation import GenerationArguments
from mlx_vlm.server.request_normalization import _build_gen_args
from mlx_vlm.server.schemas import AnthropicRequest

ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stop_sequences": ["STOP"]}


def main() -> int:
    made: GenerationArguments = _build_gen_args(AnthropicRequest(**ASKED), None)
    passed = "STOP" in repr(made)
    got = "it is passed on" if passed else "none of its arguments has it"
    print(f"mlx-vlm {version('mlx-vlm')}: expected the generation to end at STOP; {got}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
