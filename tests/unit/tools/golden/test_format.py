"""Golden files: written whole or not at all, read back, and what is damaged is reported."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from miniatures.goldens import golden, recorded

from conformance.core.errors import GoldenError
from conformance.tools.golden.format import (
    Verification,
    digest,
    load_golden,
    parse_golden,
    put_verified,
    to_text,
    write_whole,
)

GOLDEN = golden(recorded(), recorded(name="long", tokens=(5, 6)))
TEXT = to_text(GOLDEN)


def test_what_is_written_is_read_back():
    assert parse_golden(TEXT, path="calm.json") == GOLDEN


def test_each_request_is_one_line():
    lines = [line for line in TEXT.splitlines() if '"request_id"' in line]
    assert len(lines) == 2
    assert all(line.startswith('  {"request":') for line in lines)


@pytest.mark.parametrize(
    ("spoilt", "sentence"),
    [
        ("[]", "calm.json: field 'format' is None, this release reads 1"),
        (TEXT.replace('"format": 1', '"format": 2'), "field 'format' is 2"),
        (TEXT.replace("-2.0", "-2.5", 1), "field 'digest' does not fit the content"),
        (TEXT.replace('"seed": 0', '"seed": "0"'), r"Expected `int`, got `str`.*seed"),
        (TEXT.replace('"device"', '"devise"'), "provenance"),
        (TEXT.replace('"seed": 0', '"seed": 0,\n "more": 1'), "more"),
        (TEXT.replace("-2.0", "NaN", 1), "request 'short': a number is not finite"),
        (TEXT.replace('"tokens":[3,4]', '"tokens":[3]'), "'margins' has not one item for each"),
        (TEXT.replace('"top":[[[3,', '"top":[[[9,'), "request 'short': 'top' lacks token 3"),
        (TEXT.replace('"request_id":"long"', '"request_id":"short"'), "'short' occurs twice"),
    ],
    ids=lambda text: text[:20].strip() if len(text) < 80 else "",
)
def test_a_damaged_file_is_reported_with_its_field(spoilt, sentence):
    with pytest.raises(GoldenError, match=sentence):
        parse_golden(spoilt, path="calm.json")


def test_a_golden_without_requests_proves_nothing():
    with pytest.raises(GoldenError, match="'requests' is empty"):
        parse_golden(to_text(golden()), path="calm.json")


def test_the_digest_covers_the_whole_content():
    raw = json.loads(TEXT)
    assert raw["digest"] == digest(GOLDEN)
    assert digest(golden(recorded(), device="slide rule")) != digest(golden(recorded()))


PROOF = Verification("transformers 5.0", 2e-6, 2)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "toy" / "calm.json"
    write_whole(path, to_text(GOLDEN))
    return path


def test_what_was_verified_is_noted_and_all_else_stays(path):
    put_verified(path, PROOF)
    assert load_golden(path) == golden(*GOLDEN.requests, verified=PROOF)


def test_a_golden_that_is_not_there_cannot_be_verified(tmp_path):
    with pytest.raises(GoldenError, match=r"calm\.json: can't be read"):
        put_verified(tmp_path / "calm.json", PROOF)
    assert list(tmp_path.iterdir()) == []


def test_a_text_that_is_no_golden_is_not_written(path):
    before = path.read_bytes()
    with pytest.raises(GoldenError, match="digest"):
        write_whole(path, to_text(GOLDEN).replace("abacus", "slide rule"))
    assert path.read_bytes() == before


def test_a_failure_in_the_middle_leaves_the_old_file_and_no_other(path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(GoldenError, match=r"calm\.json: cannot write the golden: No space left"):
        put_verified(path, PROOF)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def fails(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.skipif(os.name == "nt", reason="there are no such signals")
def test_a_process_that_is_killed_in_the_middle_leaves_the_old_file_whole(path):
    before = path.read_bytes()
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from conformance.tools.golden.format import Verification, put_verified\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "put_verified(Path(sys.argv[1]), Verification('x', 0.0, 1))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    assert load_golden(path) == GOLDEN
