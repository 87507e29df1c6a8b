"""A family's file appears whole or not at all."""

import pytest

from conformance.core.errors import AdoptionError
from conformance.core.family import Facts, Family, load_family
from conformance.tools.new_family.writing import publish, workplace, write_family

FAMILY = Family("mine", Facts(window=8), {"model_type": "m", "vocab_size": 64})


def test_what_is_written_is_read_again(tmp_path):
    path = write_family(FAMILY, tmp_path)
    read = load_family(path)
    assert (read.config, read.facts.window, read.module) == (FAMILY.config, 8, "mine")


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    (tmp_path / "mine.json").write_text("precious")
    with pytest.raises(AdoptionError, match=r"mine\.json: exists already"):
        workplace(tmp_path / "mine.json")
    assert (tmp_path / "mine.json").read_text() == "precious"


def test_all_files_move_or_none(tmp_path):
    target = tmp_path / "out" / "mine.json"
    target.parent.mkdir()
    folder = workplace(target)
    write_family(FAMILY, folder)
    (folder / "mine.report.md").write_text("report")
    with pytest.raises(AdoptionError, match="cannot write there"):
        publish(
            folder,
            target,
            {
                folder / "mine.report.md": target.with_name("mine.report.md"),
                folder / "absent.py": target.with_name("absent.py"),
            },
        )
    assert [path.name for path in target.parent.iterdir() if path != folder] == []
    (folder / "mine.report.md").write_text("report")
    publish(folder, target, {folder / "mine.report.md": target.with_name("mine.report.md")})
    assert target.is_file()
    assert target.with_name("mine.report.md").is_file()


def test_a_family_file_is_replaced_by_force_and_nothing_else(tmp_path):
    target = write_family(FAMILY, tmp_path)
    folder = workplace(target, force=True)
    assert folder.is_dir()
    (tmp_path / "config.json").write_text('{"model_type": "m"}')
    with pytest.raises(AdoptionError, match="is no family file, so --force does not replace it"):
        workplace(tmp_path / "config.json", force=True)


def test_where_a_replacement_fails_what_was_there_is_still_there(tmp_path):
    target = tmp_path / "mine.json"
    report = tmp_path / "mine.report.md"
    report.write_text("before")
    folder = workplace(target)
    (folder / report.name).write_text("after")
    with pytest.raises(AdoptionError, match="cannot write there"):
        publish(folder, target, {folder / report.name: report})
    assert report.read_text() == "before"
