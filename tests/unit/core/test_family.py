"""A family file names no code but what lies beside it."""

import json

import pytest

from conformance.core.errors import FamilyError
from conformance.core.family import load_family, parse_family

CONFIG = {"model_type": "llama", "vocab_size": 32}


@pytest.mark.parametrize("name", ["/tmp/evil.py", "../evil.py", "a/evil.py", "evil.so", "", ".."])
def test_a_model_file_that_is_not_beside_it_is_refused(name):
    config = {**CONFIG, "conformance": {"model_file": name}}
    with pytest.raises(FamilyError, match=r"f\.json: .*'model_file' must be the name of a Python"):
        parse_family(json.dumps(config), name="f", path="f.json")


def test_a_config_that_names_code_is_refused():
    with pytest.raises(FamilyError, match="'model_file' belongs into the section"):
        parse_family(json.dumps({**CONFIG, "model_file": "evil.py"}), name="f")


@pytest.mark.parametrize("field", ["vocab_size", "n_positions"])
def test_a_size_that_is_none_is_named(field):
    with pytest.raises(FamilyError, match=field):
        parse_family(json.dumps({**CONFIG, field: {"a": 1}}), name="f")


def test_a_name_that_cannot_be_seen_is_refused(tmp_path):
    path = tmp_path / "a\n::error::b.json"
    path.write_text(json.dumps(CONFIG))
    with pytest.raises(FamilyError, match="invisible characters"):
        load_family(path)


def test_a_model_file_that_is_missing_is_named(tmp_path):
    path = tmp_path / "f.json"
    path.write_text(json.dumps({**CONFIG, "conformance": {"model_file": "mine.py"}}))
    with pytest.raises(FamilyError, match=r"f\.json: .*'model_file' names mine\.py, and the"):
        load_family(path)
    (tmp_path / "mine.py").touch()
    assert load_family(path).facts.model_file == "mine.py"
