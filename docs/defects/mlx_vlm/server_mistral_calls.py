"""mlx-vlm finds none of several calls of tools in an answer of Mistral's models.

Each of them begins with [TOOL_CALLS] and has no marker at its end. All are taken for one call
(tools/extractor.py:28), whose arguments reach from the first brace to the last one
(tools/parsers/mistral.py:13) and are no JSON: it is dropped, with its text.
"""

import sys
from importlib.metadata import version

from mlx_vlm.tools.extractor import process_tool_calls
from mlx_vlm.tools.parsers import mistral

CALL = '[TOOL_CALLS]look[ARGS]{"at": "%s"}'


def main() -> int:
    found = process_tool_calls(CALL % "north" + CALL % "south", mistral, [])
    said = f"{len(found.calls)} and the text {found.remaining_text!r}"
    print(f"mlx-vlm {version('mlx-vlm')}: expected 2 calls, got {said}")
    return 1 if len(found.calls) != 2 else 0


if __name__ == "__main__":
    sys.exit(main())
