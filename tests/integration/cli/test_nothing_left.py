"""What uses Hypothesis leaves nothing in the current folder."""

import pytest

LLAMA = ("explore", "--family", "llama")
COMMANDS = {
    "caches": ("audit", "caches", "--class", "mlx_lm.BatchKVCache", "--examples", "3"),
    "explore": (*LLAMA, "--examples", "40", "--jobs", "1"),
    "explore in workers": (*LLAMA, "--examples", "5", "--jobs", "2"),
    "false alarms": (
        "explore",
        "--false-alarms",
        "--family",
        "llama",
        "--cases",
        "5",
        "--jobs",
        "1",
    ),
}


@pytest.mark.parametrize(
    "name",
    # By day the one that Hypothesis searches in processes of their own, and the one that it plays.
    [
        pytest.param(n, marks=[pytest.mark.nightly] * (n in ("explore", "false alarms")))
        for n in COMMANDS
    ],
)
def test_a_search_leaves_the_folder_as_it_was(start, tmp_path, tmp_path_factory, name):
    cache = tmp_path_factory.mktemp("cache")
    done = start("-m", "conformance", *COMMANDS[name], PYTHONPATH="", XDG_CACHE_HOME=str(cache))
    assert done.code == 0, done
    assert list(tmp_path.iterdir()) == []
    if name != "false alarms":  # it draws without Hypothesis
        assert any((cache / "mlx-conformance" / "hypothesis").iterdir()), "it does keep something"


def test_a_folder_that_the_user_chose_stays_chosen(start, tmp_path):
    chosen = tmp_path / "chosen"
    variables = {"PYTHONPATH": "", "HYPOTHESIS_STORAGE_DIRECTORY": str(chosen)}
    assert start("-m", "conformance", *COMMANDS["caches"], **variables).code == 0
    assert list(tmp_path.iterdir()) == [chosen]


def test_a_cache_that_cannot_be_written_is_no_error(start, tmp_path):
    (tmp_path / "file").write_text("")
    variables = {"PYTHONPATH": "", "XDG_CACHE_HOME": str(tmp_path / "file")}
    done = start("-m", "conformance", *COMMANDS["caches"], **variables)
    assert done.code == 0, done
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
