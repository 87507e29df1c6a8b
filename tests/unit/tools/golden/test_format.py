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
    NAME,
    Verification,
    digest,
    find_folder,
    golden_files,
    golden_path,
    load_golden,
    load_without,
    parse_golden,
    put_verified,
    strangers,
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


@pytest.fixture
def root(tmp_path):
    for name in ("toy/calm.json", "toy/large.json", "toy/.calm.json.7.partial", "notes.txt"):
        path = tmp_path / "golden" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "golden" / "without.toml").touch()
    return tmp_path / "golden"


def test_files_are_found_by_library_and_family(root):
    assert golden_files(root) == {
        ("toy", "calm"): golden_path(root, "toy", "calm"),
        ("toy", "large"): golden_path(root, "toy", "large"),
    }


def test_what_is_no_golden_is_a_stranger(root):
    (root / "toy" / "deeper").mkdir()
    (root / "toy" / "deeper" / "calm.json").touch()
    (root / "calm.json").touch()
    names = [str(path.relative_to(root)) for path in strangers(root)]
    assert names == [
        "calm.json",
        "notes.txt",
        "toy/.calm.json.7.partial",
        "toy/deeper/calm.json",
    ]


def test_a_golden_that_comes_while_they_are_listed_is_no_stranger(root, monkeypatch):
    listed = Path.rglob

    def late(self, pattern):
        golden_path(root, "toy", "late").touch()
        return listed(self, pattern)

    monkeypatch.setattr(Path, "rglob", late)
    assert len(strangers(root)) == 2


def test_the_folder_is_the_given_one_else_that_of_the_working_directory(
    root, tmp_path, monkeypatch
):
    monkeypatch.chdir(root.parent)
    assert find_folder(None) == root
    (tmp_path / "mine").mkdir()
    assert find_folder(tmp_path / "mine") == tmp_path / "mine"


def test_a_folder_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(GoldenError, match="no folder of goldens is there"):
        find_folder(tmp_path / "lost")
    assert find_folder(tmp_path / "lost", must_exist=False) == tmp_path / "lost"


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "golden").touch()
    with pytest.raises(GoldenError, match="no folder of goldens"):
        find_folder(tmp_path / "golden", must_exist=False)


def write(tmp_path, text):
    (tmp_path / NAME).write_bytes(text if isinstance(text, bytes) else text.encode())
    return tmp_path


def test_each_family_has_its_reason(tmp_path):
    text = '[toy]\ncalm = "no abacus is so large"\n[more]\n"x.y" = "why"\n'
    assert load_without(write(tmp_path, text)) == {
        ("toy", "calm"): "no abacus is so large",
        ("more", "x.y"): "why",
    }


def test_there_need_be_none(tmp_path):
    assert load_without(tmp_path) == {}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[toy", "not TOML"),
        ('toy = "x"', "field 'toy' must be a table"),
        ("[toy]\ncalm = 1", "field 'toy.calm' must give a reason"),
        ('[toy]\ncalm = ""', "field 'toy.calm' must give a reason"),
        (b"\xff", "is not UTF-8 text"),
    ],
)
def test_a_damaged_list_is_reported_with_its_field(tmp_path, text, sentence):
    with pytest.raises(GoldenError, match=rf"without\.toml: {sentence}"):
        load_without(write(tmp_path, text))
