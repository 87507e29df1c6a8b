"""mlx-lm's server takes a call of a tool that is not closed for a whole one.

A limit or an end token may break a call off. server.py:1666 hands its text to the parser all the
same, and counts it as a call: finish_reason is "tool_calls" even if the parser finds none
(server.py:1670). The parsers of glm47, longcat, minicpm5 and muse_spark make a call of what there
is, with half of a name or without arguments; that of longcat raises an AttributeError, which the
formatter does not expect (server.py:92): the connection is closed without an answer.
"""

import sys
from importlib.metadata import version

from mlx_lm.server import ToolCallFormatter
from mlx_lm.tool_parsers import glm47, longcat, minicpm5, muse_spark

BROKEN_OFF = {
    glm47: "get_wea",
    longcat: "get_weather<longcat_arg_",
    minicpm5: '"get_weather"><param name="city">Os',
    muse_spark: '<atem:invoke name="get_weather"><atem:parameter name="city">Os',
}


def main() -> int:
    wrong = 0
    for parser, text in BROKEN_OFF.items():
        name = parser.__name__.rpartition(".")[2]
        try:
            calls = [c["function"] for c in ToolCallFormatter(parser.parse_tool_call, [])([text])]
        except AttributeError as error:
            calls = [f"AttributeError: {error}"]
        print(f"mlx-lm {version('mlx-lm')}: {name}: expected no call of {text!r}, got {calls}")
        wrong += bool(calls)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
