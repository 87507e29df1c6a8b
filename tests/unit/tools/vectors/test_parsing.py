"""A trace file is read whole, or refused in a sentence that names line and field."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from schemas import published_schema

from conformance.core.errors import VectorsError
from conformance.tools.vectors.parsing import TRACE, VECTORS, derived_schema, read_trace


def refusal(path):
    with pytest.raises(VectorsError) as caught:
        read_trace(path)
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix(str(path))


def test_runs_are_read_in_order(write_trace, plain, moving):
    first, second = read_trace(write_trace(plain, moving))
    assert (first.header.schedule, second.header.schedule) == ("plain", "moving")
    assert first.where.endswith(", line 1")
    assert len(first.lines) == len(plain) - 1
    assert not first.forced


def test_a_run_of_fed_tokens_is_forced(write_trace, plain):
    for line in plain:
        if line["record"] == "token":
            line["forced"] = True
    (run,) = read_trace(write_trace(plain))
    assert run.forced


def test_an_error_ends_a_run(write_trace, plain):
    error = {"record": "error", "type": "ValueError", "message": "no"}
    assert len(read_trace(write_trace([*plain[:3], error], plain))) == 2


def test_empty_lines_are_none(write_trace, plain):
    text = "\n".join(json.dumps(line) + "\n" for line in plain)
    assert len(read_trace(write_trace(text=text))) == 1


def test_an_empty_trace(write_trace):
    assert refusal(write_trace()) == ": the trace is empty: it has no run to judge"


def test_a_truncated_last_line(write_trace, plain):
    text = "\n".join(map(json.dumps, plain))
    assert refusal(write_trace(text=text[:-8])).startswith(
        ", line 10: the last line is not whole: "
    )


def test_a_trace_that_ends_between_two_lines(write_trace, plain):
    path = write_trace(plain[:5])
    assert refusal(path) == (
        f", line 5: the run of {path}, line 1 has no 'end': the trace is truncated"
    )


def test_a_run_within_a_run(write_trace, plain):
    path = write_trace(plain[:-1], plain)
    assert refusal(path) == f", line 10: a header, but the run of {path}, line 1 has no 'end' yet"


def test_a_run_without_a_header(write_trace, plain):
    assert refusal(write_trace(plain[1:])) == (
        ", line 1: a run begins with a header, this is 'token'"
    )


@pytest.mark.parametrize("more", [{}, {"novelty": 1}])
def test_another_format_is_reported_first(write_trace, plain, more):
    plain[0] |= {"format": 2, **more}
    assert refusal(write_trace(plain)) == (", line 1: field 'format' is 2, this release reads 1")


@pytest.mark.parametrize(
    ("index", "change", "words"),
    [
        (0, {"engine": "a/b"}, "Expected `str` matching regex '^[\\\\w.+-]+$' - at `$.engine`"),
        (0, {"dtype": None}, "Expected `str`, got `null` - at `$.dtype`"),
        (1, {"record": "word"}, "Invalid value 'word' - at `$.record`"),
        (1, {"token": "5"}, "Expected `int`, got `str` - at `$.token`"),
        (1, {"token": -1}, "Expected `int` >= 0 - at `$.token`"),
        (1, {"logprob": 1}, "Object contains unknown field `logprob`"),
        (1, {"top": [[5]]}, "Expected `array` of length 2 - at `$.top[0]`"),
        (7, {"reason": "bored"}, "Invalid enum value 'bored' - at `$.reason`"),
    ],
)
def test_a_field_that_is_wrong(write_trace, plain, index, change, words):
    plain[index] |= change
    assert refusal(write_trace(plain)).startswith(f", line {index + 1}: {words}")


def test_a_field_that_is_missing(write_trace, plain):
    del plain[1]["step"]
    assert refusal(write_trace(plain)) == ", line 2: Object missing required field `step`"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        *(
            ("-0.5", number, "2: a number is not finite, which JSON does not allow: write null")
            for number in ("NaN", "Infinity", "-Infinity")
        ),
        ("-0.5", "1e999", "2: "),
        ("{", "<", "1: not JSON: "),
    ],
)
def test_what_is_no_json(write_trace, plain, old, new, words):
    text = "".join(json.dumps(line) + "\n" for line in plain).replace(old, new, 1)
    assert refusal(write_trace(text=text)).startswith(f", line {words}")


@pytest.mark.parametrize("record", ["finish", "arrived", "removed"])
def test_what_happens_once_is_reported_once(write_trace, plain, record):
    ids = {"request_id": "a", "reason": "length"} if record == "finish" else {"request_ids": ["a"]}
    again = [{"record": record, **ids}] * 2
    assert refusal(write_trace([plain[0], *again, plain[-1]])) == (
        f", line 3: a second {record!r} of request 'a' in this run"
    )


@pytest.mark.parametrize(
    ("index", "change", "words"),
    [
        (3, {"step": 2}, "'step' of request 'a' is 2, but its step 1 is missing"),
        (3, {"step": 0}, "'step' of request 'a' is 0, which this run already has"),
        (
            4,
            {"forced": True},
            "'forced' is true, but not in the tokens before: a run is forced or free as a whole",
        ),
        (1, {"top": [[6, -0.5], [5, -0.6], [6, -9.0]]}, "'top' has token 6 twice"),
        (1, {"top": []}, "'top' is empty: leave it out"),
    ],
)
def test_a_line_that_does_not_go_with_the_others(write_trace, plain, index, change, words):
    plain[index] |= change
    assert refusal(write_trace(plain)) == f", line {index + 1}: field {words}"


DOCUMENT = Path(__file__).parents[4] / "docs" / "vectors.md"


@pytest.mark.parametrize("name", [TRACE, VECTORS])
def test_the_published_schema_follows_from_the_code(name):
    module = "conformance.tools.vectors.parsing"
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
