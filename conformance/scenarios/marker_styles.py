"""How models mark their reasoning and their calls of tools, by the parsers that libraries have.

A style writes calls as the chat templates of its models ask for them, and knows those it has
written. Sources: the templates that the parsers in ``mlx_lm/tool_parsers/`` and
``mlx_vlm/tools/parsers/`` name, and the registry in ``mlx_vlm/tools/registry.py``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

TOOL_NAME = "look"
"""The tool that is called."""
PLAIN_THINKING = ("<think>", "</think>")
"""The markers of reasoning that most models have, each of them one token."""


@dataclass(frozen=True)
class Call:
    """A call of the tool: one argument is a string, the other one a number."""

    at: str
    count: int

    @property
    def arguments(self) -> dict[str, str | int]:
        """The arguments by name."""
        return {"at": self.at, "count": self.count}


CALLS = tuple(Call(at, count) for count, at in enumerate(("north", "süd", "east", "west", "home")))
"""The calls that answers have; an argument of one of them is 0."""


@dataclass(frozen=True)
class MarkerStyle:
    """A style of markers.

    Attributes:
        name: of the parser, in the library's terms.
        libraries: those that have it.
        template: a part of a chat template by which libraries know the style.
        call: how a call is written, with places for its arguments.
        opening, closing: the markers of one call, or of a section with several.
        between: what is written between the calls of a section; ``None``: each call has its own.
        around: what is written around the calls of a section.
        thinking: the markers of reasoning.
        named: whether the library knows the style by its name in ``tokenizer_config.json``.
        whole: tokens that the vocabulary must have by itself.
    """

    name: str
    libraries: tuple[str, ...]
    template: str
    opening: str
    call: str
    closing: str
    between: str | None = None
    around: tuple[str, str] = ("", "")
    thinking: tuple[str, str] = PLAIN_THINKING
    named: bool = False
    whole: tuple[str, ...] = field(default=())

    def written(self, call: Call) -> str:
        """A call without the markers around it."""
        quoted = json.dumps(call.arguments, ensure_ascii=False)
        places = {
            "@AT@": call.at,
            "@COUNT@": str(call.count),
            "@JSON@": quoted,
            "@NAME@": TOOL_NAME,
        }
        text = self.call
        for place, value in places.items():
            text = text.replace(place, value)
        return text

    def sections(self, calls: Sequence[Call]) -> list[str]:
        """The contents of the marked sections that these calls make."""
        texts = [self.written(call) for call in calls]
        if self.between is None:
            return texts
        before, after = self.around
        return [f"{before}{self.between.join(texts)}{after}"]

    def calls(self, section: str) -> list[Call]:
        """The calls that are whole in the text of a marked section, which may be broken off."""
        said, most = section.strip(), 1 if self.between is None else 2
        for count in range(most, 0, -1):
            for calls in itertools.permutations(CALLS, count):
                (text,) = self.sections(calls)
                if said.startswith(text.removesuffix(self.around[1]).strip()):
                    return list(calls)
        return []


_BOTH = ("mlx_lm", "mlx_vlm")
_XTML = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
_ATEM = (
    '<atem:invoke name="@NAME@"><atem:parameter name="at">@AT@</atem:parameter>'
    '<atem:parameter name="count">@COUNT@</atem:parameter></atem:invoke>'
)
_ARGUMENTS = (
    "@NAME@<arg_key>at</arg_key><arg_value>@AT@</arg_value>"
    "<arg_key>count</arg_key><arg_value>@COUNT@</arg_value>"
)
_M3 = "]<]minimax[>["

STYLES: Mapping[str, MarkerStyle] = {
    style.name: style
    for style in (
        MarkerStyle(
            "json_tools",
            _BOTH,
            "<tool_call> tool_call.name",
            "<tool_call>",
            '{"name": "@NAME@", "arguments": @JSON@}',
            "</tool_call>",
        ),
        MarkerStyle(
            "qwen3_coder",
            _BOTH,
            "<tool_call>\\n<function=",
            "<tool_call>",
            "\n<function=@NAME@>\n<parameter=at>\n@AT@\n</parameter>\n"
            "<parameter=count>\n@COUNT@\n</parameter>\n</function>\n",
            "</tool_call>",
        ),
        MarkerStyle("glm47", _BOTH, "<arg_key>", "<tool_call>", _ARGUMENTS, "</tool_call>"),
        MarkerStyle(
            "laguna", ("mlx_lm",), "", "<tool_call>", _ARGUMENTS, "</tool_call>", named=True
        ),
        MarkerStyle(
            "gemma4",
            _BOTH,
            "<|tool_call> <tool_call|>",
            "<|tool_call>",
            'call:@NAME@{at:<|"|>@AT@<|"|>,count:@COUNT@}',
            "<tool_call|>",
            thinking=("<|channel>thought", "<channel|>"),
            whole=("<|channel>", "<channel|>"),
        ),
        MarkerStyle(
            "function_gemma",
            ("mlx_lm",),
            "<start_function_call>",
            "<start_function_call>",
            "call:@NAME@{at:<escape>@AT@<escape>,count:@COUNT@}",
            "<end_function_call>",
        ),
        MarkerStyle(
            "kimi_k2",
            _BOTH,
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_begin|>",
            "<|tool_call_begin|>functions.@NAME@:@COUNT@<|tool_call_argument_begin|>@JSON@"
            "<|tool_call_end|>",
            "<|tool_calls_section_end|>",
            between="",
        ),
        MarkerStyle(
            "kimi_k3",
            ("mlx_lm",),
            "",
            "<|open|>tools<|sep|>",
            '<|open|>call tool="@NAME@" index="1"<|sep|>'
            '<|open|>argument key="at" type="string"<|sep|>@AT@<|close|>argument<|sep|>'
            '<|open|>argument key="count" type="number"<|sep|>@COUNT@<|close|>argument<|sep|>'
            "<|close|>call<|sep|>",
            "<|close|>tools<|sep|>",
            between="",
            thinking=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
            whole=_XTML,
        ),
        MarkerStyle(
            "longcat",
            _BOTH,
            "<longcat_tool_call>",
            "<longcat_tool_call>",
            "@NAME@\n<longcat_arg_key>at</longcat_arg_key>\n"
            "<longcat_arg_value>@AT@</longcat_arg_value>\n"
            "<longcat_arg_key>count</longcat_arg_key>\n"
            "<longcat_arg_value>@COUNT@</longcat_arg_value>\n",
            "</longcat_tool_call>",
        ),
        MarkerStyle(
            "minicpm5",
            _BOTH,
            '<function name=" <param name="',
            "<function name=",
            '"@NAME@"><param name="at">@AT@</param><param name="count">@COUNT@</param>',
            "</function>",
        ),
        MarkerStyle(
            "minimax_m2",
            _BOTH,
            "<minimax:tool_call>",
            "<minimax:tool_call>",
            '\n<invoke name="@NAME@">\n<parameter name="at">@AT@</parameter>\n'
            '<parameter name="count">@COUNT@</parameter>\n</invoke>\n',
            "</minimax:tool_call>",
            between="",
        ),
        MarkerStyle(
            "minimax_m3",
            ("mlx_vlm",),
            f"{_M3}<tool_call>",
            f"{_M3}<tool_call>",
            f'{_M3}<invoke name="@NAME@">{_M3}<at>@AT@{_M3}</at>'
            f"{_M3}<count>@COUNT@{_M3}</count>{_M3}</invoke>",
            f"{_M3}</tool_call>",
            between="",
        ),
        MarkerStyle(
            "mistral",
            _BOTH,
            "[TOOL_CALLS]",
            "[TOOL_CALLS]",
            "@NAME@[ARGS]@JSON@",
            "",
            between="[TOOL_CALLS]",
        ),
        MarkerStyle(
            "pythonic",
            _BOTH,
            "<|tool_call_start|> <|tool_call_end|>",
            "<|tool_call_start|>",
            '@NAME@(at="@AT@", count=@COUNT@)',
            "<|tool_call_end|>",
            between=", ",
            around=("[", "]"),
        ),
        MarkerStyle(
            "muse_spark",
            ("mlx_lm",),
            "<atem:function_calls>",
            "<atem:function_calls>",
            _ATEM,
            "</atem:function_calls>",
            between="",
        ),
        MarkerStyle(
            "atem",
            ("mlx_vlm",),
            "<atem:function_calls> <atem:invoke",
            "to=self<|message|>",
            _ATEM,
            "</atem:function_calls>",
            between="",
        ),
        MarkerStyle(
            "cohere2_moe",
            ("mlx_vlm",),
            "<|START_ACTION|>",
            "<|START_ACTION|>",
            '{"tool_name": "@NAME@", "parameters": @JSON@}',
            "<|END_ACTION|>",
            between=", ",
            around=("[", "]"),
            thinking=("<|START_THINKING|>", "<|END_THINKING|>"),
        ),
        MarkerStyle(
            "harmony",
            ("mlx_vlm",),
            "<|channel|>commentary <|call|>",
            "<|channel|>commentary to=",
            "functions.@NAME@ <|constrain|>json<|message|>@JSON@",
            "<|call|>",
        ),
    )
}
"""The styles by name."""
