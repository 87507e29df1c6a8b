"""Each place is claimed by one option, before anything runs."""

import os

import click
import pytest

from conformance.app.cli.outputs import reads, report_place, writable
from conformance.core.errors import ConformanceError


@pytest.fixture(autouse=True)
def _context():
    with click.Context(click.Command("a")):
        yield


def test_two_outputs_to_one_file_are_refused_by_whatever_names(tmp_path):
    (tmp_path / "link").symlink_to("a")
    writable(tmp_path / "a", "--json")
    with pytest.raises(ConformanceError, match="--json and --junit would both write"):
        writable(tmp_path / "link", "--junit")


def test_a_file_within_a_folder_that_is_replaced_is_refused(tmp_path):
    (tmp_path / "report").mkdir()
    report_place(tmp_path / "report", "--report")
    with pytest.raises(ConformanceError, match="--report and --json would both write"):
        writable(tmp_path / "report" / "r.jsonl", "--json")


def test_a_file_in_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConformanceError, match="is not a report"):
        report_place(tmp_path / "file", "--report")


def test_a_device_takes_the_output_of_all(tmp_path):
    for option in ("--json", "--junit"):
        assert str(writable(tmp_path / os.devnull, option)) == os.devnull


def test_what_the_command_reads_is_not_replaced(tmp_path):
    (tmp_path / "a").touch()
    (tmp_path / "link").symlink_to("a")
    reads([tmp_path / "link"])
    for name in ("a", "link", "../" + tmp_path.name + "/a"):
        with pytest.raises(ConformanceError, match=r"--markdown: .+/a is read by this command"):
            writable(tmp_path / name, "--markdown")
    writable(tmp_path / "b", "--markdown")


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConformanceError, match=r"--json: .+/loop can't be written: Too many l"):
        writable(tmp_path / "loop", "--json")
    with pytest.raises(ConformanceError, match="loop: cannot write a report there: Too"):
        report_place(tmp_path / "loop", "--report")
