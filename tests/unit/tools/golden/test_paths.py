"""The golden folder: paths, strange files, families without a golden."""

from pathlib import Path

import pytest

from conformance.core.errors import GoldenError
from conformance.tools.golden.paths import (
    NAME,
    find_folder,
    golden_files,
    golden_path,
    load_without,
    strangers,
)


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
