"""mlx-vlm's server counts fewer tokens of an answer in one piece than of the same in a stream.

In one piece the markers of reasoning are taken out of usage.completion_tokens
(server/openai.py:2623, server/app.py:263), as two tokens whatever they are made of; a stream's
usage is the number of tokens that were generated (server/openai.py:2276). By the API,
completion_tokens has all of them.
"""

import sys
from importlib.metadata import version

from mlx_vlm.server.app import _count_thinking_tag_tokens

TOKENS = ("<think>", "so", "</think>", "yes")


def main() -> int:
    streamed = len(TOKENS)
    whole = len(TOKENS) - _count_thinking_tag_tokens("".join(TOKENS))
    print(f"mlx-vlm {version('mlx-vlm')}: expected {streamed} tokens in both; in one piece {whole}")
    return 0 if whole == streamed else 1


if __name__ == "__main__":
    sys.exit(main())
