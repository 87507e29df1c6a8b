"""The published schema is the one derived from the code."""

import json
import math

import jsonschema
import pytest

from conformance.core.verdict import Verdict, encode
from conformance.report.result_schema import derived_schema, published_schema

VALIDATOR = jsonschema.Draft202012Validator(published_schema())


def test_the_published_schema_follows_from_the_code():
    message = (
        "python -c 'from conformance.report.result_schema import *; print(schema_text(), end=\"\")'"
    )
    assert published_schema() == derived_schema(), f"write it anew: {message}"


def test_it_is_a_valid_schema():
    jsonschema.Draft202012Validator.check_schema(published_schema())


def test_results_of_every_verdict_are_valid(result, finding):
    for verdict in Verdict:
        line = encode(result(verdict=verdict, evidence=(finding(verdict),)))
        VALIDATOR.validate(json.loads(line))


def test_numbers_that_are_not_finite_are_valid(result, finding):
    bad = result(max_abs_diff=math.nan, ratio=math.inf, evidence=(finding(difference=math.nan),))
    VALIDATOR.validate(json.loads(encode(bad)))


@pytest.mark.parametrize(
    "change",
    [{"verdict": "fine"}, {"seed": "0"}, {"evidence": [{"what": "x"}]}, {"expected": None}],
)
def test_what_is_wrong_is_refused(result, change):
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(json.loads(encode(result())) | change)


def test_nothing_that_is_needed_may_be_missing(result):
    plain = json.loads(encode(result()))
    for name in ("case", "verdict", "expected", "evidence", "versions", "device", "seconds"):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate({key: value for key, value in plain.items() if key != name})
