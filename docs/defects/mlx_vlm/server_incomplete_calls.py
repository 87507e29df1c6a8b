"""mlx-vlm's server ends a stream with an error if a call of a tool in it is never closed.

With the parsers json_tools, qwen3_coder, gemma4 and cohere2_moe a stream has the begin of a call
before the call is closed. If a limit or an end token breaks it off, ``finish`` raises
(tools/streaming.py:251) in the middle of the stream (server/openai.py:2242): the client gets an
error in place of the finish_reason and the usage. The same answer in one piece has its text.
"""

import sys
from importlib.metadata import version

from mlx_vlm.tools.extractor import process_tool_calls
from mlx_vlm.tools.parsers import json_tools
from mlx_vlm.tools.streaming import ToolCallDeltaState

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
SAID = '<tool_call>{"name": "look", "arguments": {"at": "no'


def main() -> int:
    state = ToolCallDeltaState(json_tools, TOOLS)
    sent = state.feed(SAID)
    calls = process_tool_calls(SAID, json_tools, TOOLS).calls
    try:
        state.finish(calls)
    except ValueError as error:
        got = f"ValueError: {error}"
    else:
        got = "an end"
    name = f"mlx-vlm {version('mlx-vlm')}"
    print(f"{name}: sent {len(sent)} piece of a call; expected an end of the stream, got {got}")
    return 1 if got != "an end" else 0


if __name__ == "__main__":
    sys.exit(main())
