"""mlx-vlm's /v1/responses loses the text beside a call of a tool, if the answer comes in one piece.

The items of its output are reasoning and calls (server/responses_state.py:564). A stream adds an
item for the text (server/openai.py:1534), an answer in one piece does not (server/openai.py:1790).
"""

import sys
from importlib.metadata import version

from mlx_vlm.server.responses_state import _response_output_items_from_text
from mlx_vlm.tools import load_tool_module

CALL = '<tool_call>{"name": "look", "arguments": {"at": "north"}}</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def main() -> int:
    items, *_ = _response_output_items_from_text(
        f"I will look.{CALL}", "m", load_tool_module("json_tools"), TOOLS, {"look": "function"}
    )
    kinds = [item["type"] for item in items]
    print(f"mlx-vlm {version('mlx-vlm')}: expected a message and a function_call, got {kinds}")
    return 0 if "message" in kinds else 1


if __name__ == "__main__":
    sys.exit(main())
