"""The plugin's options, one by one, and what is wrong in them."""

import pytest


@pytest.mark.parametrize(
    ("options", "cases"),
    [
        (["--conformance-family", "c*m"], 3),
        (["--conformance-family", "calm", "--conformance-family", "quiet"], 6),
        (["--conformance-family", "calm", "--conformance-scenario", "r*"], 2),
        (["--conformance-family", "calm", "--conformance-dtype", "float16"], 3),
        (["--conformance-family", "calm", "--conformance-seed", "1", "--conformance-seed", "2"], 6),
    ],
)
def test_the_selection(suite, options, cases):
    done = suite(*options)
    assert done.code == 0, done
    assert f"{cases} passed" in done.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--conformance-family", "nope"], "no family matches 'nope'"),
        (["--conformance-dtype", "float8"], "no dtype 'float8'"),
        (["--conformance-seed", "x"], "seed 'x' is no whole number"),
        (["--conformance-timeout", "x"], "'x' is no number of seconds"),
        (["--conformance-expectations", "gone"], "there is no such folder of expectations"),
        (["--conformance-family-file", "gone.json"], "gone.json: can't be read"),
        (["--conformance-json", "gone/r.jsonl"], "cannot write results there"),
    ],
)
def test_a_mistake_is_one_sentence_and_pytest_s_usage_error(suite, options, message):
    done = suite(*options)
    assert done.code == pytest.ExitCode.USAGE_ERROR, done
    assert message in done.err
    assert "Traceback" not in done.err + done.out


def test_a_family_file(suite, tmp_path):
    (tmp_path / "mine.json").write_text('{"vocab_size": 16, "conformance": {"library": "toy"}}')
    done = suite("--conformance-family-file", "mine.json", "--conformance-family", "mine")
    assert "3 passed" in done.out


def test_the_user_s_own_timeout_comes_first(suite):
    done = suite("--conformance-family", "stuck", "--timeout", "1")
    assert "hang: toy/stuck/ragged" in done.out


def test_no_expectations(suite, tmp_path):
    folder = tmp_path / "known"
    folder.mkdir()
    (folder / "toy.toml").write_text(
        'package = "toy"\n[[defect]]\nid = "padding"\nfamilies = ["broken"]\nversions = ">=1"\n'
        'where = "x.py:1"\nwhy = "x"\nscript = "x.py"\nverdicts = { ragged = "diverged" }\n'
    )
    options = ("--conformance-family", "broken", "--conformance-expectations", "known")
    assert suite(*options).code == 0
    assert suite(*options, "--conformance-no-expectations").code == 1


def test_ini_settings_do_the_same(suite, tmp_path):
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nconformance_family = calm quiet\nconformance_scenario = repeat\n"
        "conformance_json = r.jsonl\n"
    )
    done = suite()
    assert done.code == 0, done
    assert done.verdicts() == {"calm/repeat": "exact", "quiet/repeat": "exact"}


def test_the_command_line_comes_before_the_ini_file(suite, tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nconformance_family = calm quiet\n")
    assert "3 passed" in suite("--conformance-family", "tied").out
