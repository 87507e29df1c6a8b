"""A file of a sealed folder is believed only as it was written, and where nobody else may write."""

import os
from pathlib import Path

import pytest

from conformance.reference import sealed
from conformance.reference.sealed import SealedFolder


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache" / "results"


@pytest.fixture
def written(folder):
    SealedFolder(folder).write(folder / "a" / "one.json", b"what was found")
    return folder / "a" / "one.json"


def test_it_is_read_as_it_was_written(folder, written):
    assert SealedFolder(folder).read(written) == b"what was found"
    assert SealedFolder(folder).read(folder / "nothing") is None


@pytest.mark.parametrize(
    "edit",
    [
        lambda data: data.replace(b"found", b"faked"),
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: b"what was found",
    ],
)
def test_one_that_was_edited_counts_as_none_and_is_removed(folder, written, edit):
    written.write_bytes(edit(written.read_bytes()))
    assert SealedFolder(folder).read(written) is None
    assert not written.exists()


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path)])
def test_what_is_no_file_counts_as_none_and_is_removed(folder, written, put):
    written.unlink()
    put(written)
    assert SealedFolder(folder).read(written) is None
    assert not os.path.lexists(written)
    SealedFolder(folder).write(written, b"again")
    assert SealedFolder(folder).read(written) == b"again"


def test_one_under_another_name_counts_as_none(folder, written):
    written.rename(folder / "a" / "two.json")
    assert SealedFolder(folder).read(folder / "a" / "two.json") is None


def test_one_of_another_installation_counts_as_none(folder, written):
    (folder.parent / "seal.key").unlink()
    assert SealedFolder(folder).read(written) is None


def test_the_key_is_for_its_owner_alone_and_a_damaged_one_is_made_again(folder, written):
    key = folder.parent / "seal.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.parent.iterdir() if path.is_file()] == ["seal.key"]
    key.write_bytes(b"short")
    assert SealedFolder(folder).read(written) is None
    assert len(key.read_bytes()) == 32


@pytest.mark.parametrize("place", ["results", "cache"])
@pytest.mark.parametrize("mode", [0o775, 0o777, 0o757])
def test_a_folder_that_others_may_write_to_is_not_used(folder, written, place, mode):
    shared = folder if place == "results" else folder.parent
    shared.chmod(mode)
    again = SealedFolder(folder)
    assert again.read(written) is None
    again.write(folder / "new", b"x")
    assert not (folder / "new").exists()
    assert str(shared) in again.distrusted
    assert "others may write to it" in again.distrusted
    shared.chmod(0o755)
    assert SealedFolder(folder).read(written) == b"what was found"


def test_a_folder_of_another_user_is_not_used(folder, written, monkeypatch):
    owner = os.geteuid()
    monkeypatch.setattr(sealed.os, "geteuid", lambda: owner + 1)
    again = SealedFolder(folder)
    assert again.read(written) is None
    assert "another user" in again.distrusted


def test_where_no_key_can_be_kept_what_is_written_is_read_by_nobody_else(tmp_path):
    (tmp_path / "file").write_text("in the way")
    folder = SealedFolder(tmp_path / "file" / "results")
    assert folder.read(tmp_path / "file" / "results" / "a") is None
    with pytest.raises(OSError, match=r"file"):
        folder.write(tmp_path / "file" / "results" / "a", b"x")
