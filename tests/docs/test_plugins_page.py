"""``docs/plugins.md`` has every field and capability that an engine meets, and no other."""

import dataclasses
import re
from pathlib import Path

import msgspec
import pytest

from conformance import Capability, EngineOptions, PrefixReuse, Request, StepOutput, TokenEvent
from conformance.core.engine import Submission
from conformance.scenarios import LADDER

TEXT = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
FIELDS = (Submission, Request, EngineOptions, StepOutput, TokenEvent)


def table(text, title):
    """The cells of the first table after ``title``, row by row, without its head."""
    _, found, rest = text.partition(title)
    assert found, title
    lines = re.search(r"(?:^\|.*\n)+", rest, re.MULTILINE)[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def first_cells(text, title):
    return [row[0].strip("` ") for row in table(text, title)]


def fields(kind):
    """Names of the fields of a dataclass or a struct."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return [field.name for field in msgspec.structs.fields(kind)]


def title_of(kind):
    """Where the page introduces the table of a class."""
    return {
        Submission: "gets `Submission` objects:",
        Request: "A `Request` is plain data.",
        EngineOptions: "`EngineOptions` are what",
        StepOutput: "gives a `StepOutput`:",
        TokenEvent: "a `TokenEvent` has:",
    }[kind]


@pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.__name__)
def test_each_field_is_explained(kind):
    assert first_cells(TEXT, title_of(kind)) == fields(kind)


def rungs(capability):
    found = [f"`{scenario.name}`" for scenario in LADDER if capability in scenario.needs]
    return ", ".join(found) or "none by itself"


def test_each_capability_has_the_rungs_that_need_it():
    rows = table(TEXT, "## Capabilities")
    assert [row[0] for row in rows] == [f"`{capability}`" for capability in Capability]
    assert {row[0]: row[2] for row in rows} == {f"`{c}`": rungs(c) for c in Capability}
    assert all(len(row[1]) > 20 for row in rows)


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(PrefixReuse)])
def test_each_rule_of_reuse_is_explained(field):
    rows = table(TEXT, "### What an engine cannot do by design")
    assert any(f"PrefixReuse({field}=" in row[0] for row in rows)


def test_the_needs_of_fields_are_capabilities():
    for kind in (Request, EngineOptions):
        needs = [row[2].strip("` ") for row in table(TEXT, title_of(kind))]
        assert set(needs) - {""} <= set(Capability)


def test_a_field_that_is_missing_is_found():
    planted = re.sub(r"^\| `stop` \| .*\n", "", TEXT, flags=re.MULTILINE)
    assert first_cells(planted, title_of(Request)) != fields(Request)
