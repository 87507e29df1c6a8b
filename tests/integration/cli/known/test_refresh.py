"""``conformance known refresh``: one page about a release, made without the network."""

import json

import pytest
from stand_in_releases import CASE, command_on_stand_ins

from conformance.app.cli.known import refresh
from conformance.checks.expectations import loading


@pytest.fixture
def known(tmp_path, monkeypatch):
    """The command, on a wheelhouse and a stand-in for this project; its result."""
    return command_on_stand_ins(tmp_path, monkeypatch, "known", "refresh")


def test_a_page_has_what_a_release_broke(known, tmp_path):
    """The release before 0.31.3 is wrong in the one family whose module differs."""
    file, folder = tmp_path / "page.md", tmp_path / "results"
    options = ("--from", "0.31.3", "--page", str(file), "--json", str(folder))
    done = known("--library", "mlx-lm==0.31.2", *options)
    assert done.exit_code == 0, done.output
    page = file.read_text()
    assert page.startswith("# mlx-lm 0.31.2, compared with 0.31.3\n\n1 items to read. 1 cases of ")
    assert "1 modules differ." in page, "a comment is no difference"
    assert "## New failures\n\n- llama: 1 case fails, at `ragged`: token 3 is 6." in page
    assert f"`conformance show {CASE}`" in page
    assert page in done.output
    assert "1 items to read; " in done.stderr
    again = known("--library", "mlx-lm==0.31.2", *options, "--resume")
    assert "mlx-lm 0.31.2: 1 cases, from " in again.stderr
    assert file.read_text() == page


def test_a_release_that_touches_no_family_runs_nothing(known):
    done = known("--library", "mlx-lm==0.31.2", "--from", "0.31.1", "--family", "llama")
    assert done.exit_code == 0, done.output
    assert "0 items to read. 0 cases of 0 families ran; 0 modules differ." in done.output


def test_a_release_is_recorded_with_the_defects_that_it_has(known, tmp_path, monkeypatch):
    monkeypatch.setattr(refresh, "OWN", tmp_path)
    done = known("--library", "mlx-lm==0.31.2", "--from", "0.31.3", "--write")
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / loading.SHOWN).read_text()) == {"mlx-lm": {"0.31.2": []}}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("mlx-lm",), "name one release, for example mlx-vlm==0.7.10"),
        (("mlx-lm==0.31.2,0.31.3",), "name one release"),
        (("mlx-lm==0.31.2", "--from", "0.31.2"), "compare mlx-lm 0.31.2 with another release"),
        (("mlx-lm==0.31.2", "--resume"), "--resume needs --json DIR"),
        (("mlx-lm==0.32.0", "--from", "0.31.2"), "mlx-lm 0.32.0 cannot be run: plugin 'mlx_lm'"),
        (("mlx-lm==0.31.2", "--family", "lama"), "no family matches 'lama'; did you mean llama"),
    ],
)
def test_what_cannot_be_done_ends_in_one_sentence(known, words, says):
    done = known("--library", *words)
    assert done.exit_code == 2
    assert says in done.stderr.splitlines()[-1]
    assert done.stderr.splitlines()[-1].startswith("conformance: ")
