"""Result files of ``conformance audit power``."""

import pytest

from conformance.core.errors import ResultError
from conformance.report.trials import Kill, Outcome, Trial, encode, read_trials


def trial(fault, outcome=Outcome.KILLED, *kills, **more):
    return Trial(fault, "masks", "mlx_lm", "llama", "float32", 0, outcome, kills, **more)


KILLED = trial("A", Outcome.KILLED, Kill("ragged", "drift", ("forced",), 12.5), noise=0.5)


def written(path, *trials):
    path.write_text("".join(encode(item) + "\n" for item in trials))
    return path


def test_what_was_written_is_read(tmp_path):
    assert read_trials([written(tmp_path / "a", KILLED)]) == (KILLED,)


def test_files_are_merged_and_the_last_word_counts(tmp_path):
    first = written(tmp_path / "a", KILLED, trial("B", Outcome.SURVIVED))
    second = written(tmp_path / "b", trial("B"), trial("C"))
    found = {item.fault: item.outcome for item in read_trials([first, second])}
    assert found == {"A": "killed", "B": "killed", "C": "killed"}


@pytest.mark.parametrize("line", ["{", '{"case": "x"}', encode(KILLED)[:-9]])
def test_a_line_that_is_no_trial_is_reported_with_its_place(tmp_path, line):
    path = written(tmp_path / "a", KILLED)
    path.write_text(path.read_text() + line)
    with pytest.raises(ResultError, match=r"a, line 2: not a result of `conformance audit power`"):
        read_trials([path])


def test_a_file_that_cannot_be_read_is_reported(tmp_path):
    with pytest.raises(ResultError, match="can't be read"):
        read_trials([tmp_path / "gone"])


def test_the_signal_is_that_of_the_clearest_kill():
    kills = (Kill("a", "drift", (), 3.0), Kill("b", "drift", (), 9.0), Kill("c", "protocol", ()))
    assert trial("A", Outcome.KILLED, *kills).signal == 9.0
    assert trial("A", Outcome.KILLED, kills[2]).signal is None
