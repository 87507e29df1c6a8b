"""What a style writes, it knows again; libraries know the style by its template."""

import importlib
import itertools
import json
import operator
import pkgutil

import pytest
from mlx_lm import tool_parsers as of_mlx_lm
from mlx_vlm.tools import parsers as of_mlx_vlm
from mlx_vlm.tools.registry import _infer_tool_parser

from conformance.scenarios.marker_styles import CALLS, STYLES, TOOL_NAME

NAME = operator.attrgetter("name")


@pytest.mark.parametrize("style", STYLES.values(), ids=NAME)
def test_a_section_has_its_calls_and_no_part_of_another(style):
    one, two = CALLS[:2]
    for section, calls in zip(style.sections([one]), ([one],), strict=True):
        assert style.calls(section) == calls
        assert style.calls(f"\n{section} ") == calls
        assert style.calls(section[: len(section) // 2]) == []
    sections = style.sections([one, two])
    assert [call for section in sections for call in style.calls(section)] == [one, two]


@pytest.mark.parametrize(("library", "parsers"), [("mlx_lm", of_mlx_lm), ("mlx_vlm", of_mlx_vlm)])
def test_each_parser_of_a_library_has_a_style_which_it_reads(library, parsers):
    found = {module.name for module in pkgutil.iter_modules(parsers.__path__)}
    assert found == {style.name for style in STYLES.values() if library in style.libraries}
    for name, call in itertools.product(sorted(found), CALLS[:2]):
        parser, style = importlib.import_module(f"{parsers.__name__}.{name}"), STYLES[name]
        # A section is what is between the markers, as servers hand it over.
        assert style.opening.startswith(parser.tool_call_start)
        assert parser.tool_call_end == style.closing
        (section,) = style.sections([call])
        text = style.opening.removeprefix(parser.tool_call_start) + section
        read = parser.parse_tool_call(text.strip(), TOOLS)
        (read,) = read if isinstance(read, list) else [read]
        arguments = read["arguments"]
        assert read["name"] == TOOL_NAME
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        assert arguments == call.arguments


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": TOOL_NAME,
            "parameters": {
                "type": "object",
                "properties": {"at": {"type": "string"}, "count": {"type": "integer"}},
            },
        },
    }
]


@pytest.mark.parametrize(
    "style", [s for s in STYLES.values() if "mlx_vlm" in s.libraries], ids=NAME
)
def test_mlx_vlm_knows_the_style_by_its_template(style):
    assert _infer_tool_parser(f"{{#- {style.template} -#}}") == style.name
