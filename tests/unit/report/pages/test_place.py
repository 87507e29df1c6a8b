"""A folder that is whole, or as it was."""

import errno
from pathlib import Path

import pytest

from conformance.core.errors import ReportError
from conformance.report.pages.place import MARK, check_place, whole_folder


def write(folder, text="new"):
    with whole_folder(folder) as new:
        (new / MARK).write_text(text)
        (new / "page.html").write_text(text)


def write_half(folder):
    with whole_folder(folder) as new:
        (new / "page.html").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_new_folder_is_made_and_nothing_is_left_beside(tmp_path):
    write(tmp_path / "report")
    assert (tmp_path / "report" / "page.html").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    assert (tmp_path / "report").stat().st_mode & 0o777 == 0o755


def test_an_older_report_is_replaced_with_all_that_was_in_it(tmp_path):
    write(tmp_path / "report", "old")
    (tmp_path / "report" / "stale.html").touch()
    write(tmp_path / "report")
    assert sorted(p.name for p in (tmp_path / "report").iterdir()) == ["page.html", MARK]
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_an_empty_folder_is_taken(tmp_path):
    (tmp_path / "report").mkdir()
    write(tmp_path / "report")
    assert (tmp_path / "report" / MARK).is_file()


def test_a_link_stays_one(tmp_path):
    write(tmp_path / "there", "old")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / MARK).read_text() == "new"


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_no_report_is_never_replaced(tmp_path, kind):
    place = tmp_path / "mine"
    if kind == "file":
        place.write_text("precious")
    else:
        place.mkdir()
        (place / "thesis.txt").write_text("precious")
    with pytest.raises(ReportError, match="exists and is not a report of this project"):
        write(place)
    assert (place if kind == "file" else place / "thesis.txt").read_text() == "precious"


def test_a_missing_parent_is_reported_before_any_work(tmp_path):
    with pytest.raises(ReportError, match=r"no folder .*/none"):
        check_place(tmp_path / "none" / "report")


def test_a_read_only_parent_is_reported_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(ReportError, match="is read-only"):
        check_place(tmp_path / "report")


def test_a_failure_in_between_leaves_the_older_report(tmp_path):
    write(tmp_path / "report", "old")
    with pytest.raises(ReportError, match="cannot write a report there: No space left"):
        write_half(tmp_path / "report")
    assert (tmp_path / "report" / "page.html").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_if_the_new_one_cannot_be_moved_in_the_older_comes_back(tmp_path, monkeypatch):
    write(tmp_path / "report", "old")
    rename = Path.rename

    def failing(self, target):
        if Path(target).name == "report" and self.name != "old":
            raise PermissionError(errno.EACCES, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(ReportError, match="Permission denied"):
        write(tmp_path / "report")
    assert (tmp_path / "report" / "page.html").read_text() == "old"
