"""The published schemas, the code and the documented example are one."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from schemas import published_schema

from conformance.tools.vectors.parsing import read_trace
from conformance.tools.vectors.records import TRACE, VECTORS, derived_schema

DOCUMENT = Path(__file__).parents[4] / "docs" / "vectors.md"


@pytest.mark.parametrize("name", [TRACE, VECTORS])
def test_the_published_schema_follows_from_the_code(name):
    module = "conformance.tools.vectors.records"
    make = f"from {module} import *; print(schema_text({name!r}), end='')"
    assert published_schema(name) == derived_schema(name), f"write it anew: {make}"


@pytest.mark.parametrize("name", [TRACE, VECTORS])
def test_it_is_a_valid_schema(name):
    jsonschema.Draft202012Validator.check_schema(published_schema(name))


@pytest.fixture
def valid():
    return jsonschema.Draft202012Validator(published_schema(TRACE)).is_valid


def test_right_lines_are_valid(plain, moving, valid):
    error = {"record": "error", "type": "E", "message": "no"}
    assert all(map(valid, [*plain, *moving, error]))


@pytest.mark.parametrize(
    ("index", "change"),
    [
        (0, {"engine": "a/b"}),
        (0, {"format": "1"}),
        (1, {"record": "word"}),
        (1, {"step": -1}),
        (1, {"top": [[5]]}),
        (1, {"more": 1}),
        (7, {"reason": "bored"}),
    ],
)
def test_what_is_refused_is_not_valid(plain, valid, index, change):
    assert not valid({**plain[index], **change})


@pytest.mark.parametrize(
    ("name", "field"),
    [("manifest.json", "families"), ("toy/ragged.json", "schedules"), ("toy/golden.json", "dtype")],
)
def test_exported_files_are_valid(vectors, name, field):
    validator = jsonschema.Draft202012Validator(published_schema(VECTORS))
    file = json.loads((vectors / name).read_text())
    validator.validate(file)
    assert not validator.is_valid({**file, field: 3})


def test_the_documented_example_is_a_trace(tmp_path, valid):
    blocks = DOCUMENT.read_text(encoding="utf-8").split("```jsonl\n")[1:]
    (example,) = [block.partition("```")[0] for block in blocks]
    assert all(valid(msgspec.json.decode(line)) for line in example.splitlines())
    path = tmp_path / "trace.jsonl"
    path.write_text(example)
    kinds = {line.record.__struct_config__.tag for run in read_trace(path) for line in run.lines}
    assert kinds == {"arrived", "removed", "token", "finish", "error", "end"}
