"""Result files of ``conformance audit power``."""

import pytest

from conformance.core.errors import ResultError
from conformance.core.verdict import encode
from conformance.report.trials import (
    BEGIN,
    END,
    Kill,
    Outcome,
    Trial,
    read_trials,
    separations,
    with_faults,
)


def trial(fault, outcome=Outcome.KILLED, *kills, **more):
    return Trial(fault, "masks", "mlx_lm", "llama", "float32", 0, outcome, kills, **more)


KILLED = trial("A", Outcome.KILLED, Kill("ragged", "drift", ("forced",), 12.5), noise=0.5)


def written(path, *trials):
    path.write_text("".join(encode(item) + "\n" for item in trials))
    return path


def test_what_was_written_is_read(tmp_path):
    assert read_trials([written(tmp_path / "a", KILLED)]) == (KILLED,)


def test_a_file_that_cannot_be_read_is_reported(tmp_path):
    with pytest.raises(ResultError, match="can't be read"):
        read_trials([tmp_path / "gone"])


# Smallest signal over largest noise, for each family and dtype -----------------------------------


def trial_with(fault, *ratios, family="llama", dtype="float32", noise=None, outcome=Outcome.KILLED):
    kills = tuple(Kill("ragged", "drift", ("forced",), ratio) for ratio in ratios)
    about = (fault, "masks", "mlx_lm", family, dtype, 0)
    return Trial(*about, outcome, kills, noise=noise)


def test_it_is_the_smallest_signal_over_the_largest_noise():
    (found,) = separations(
        [trial_with("A", 900.0, noise=3.0), trial_with("B", 600.0, 800.0, noise=1.5)]
    )
    assert (found.signal, found.noise, found.value) == (800.0, 3.0, pytest.approx(800 / 3))
    assert found.fault == "B"


def test_a_fault_that_no_number_detects_has_no_signal():
    assert separations([trial_with("A", None), trial_with("B", outcome=Outcome.SURVIVED)]) == ()
    (found,) = separations([trial_with("A", None), trial_with("B", 200.0)])
    assert found.fault == "B"


# What kills each fault is a table between the marks of a Markdown file ---------------------------


def tried(fault, outcome=Outcome.KILLED, engine="one_server", **more):
    kills = (Kill("served_alone", "protocol", ("claims", "free")),)
    made = {"kills": kills if outcome is Outcome.KILLED else (), **more}
    return Trial(fault, "server answers", engine, "llama", "float32", 0, outcome, **made)


def test_each_fault_has_a_row_and_each_engine_a_column():
    trials = [
        tried("S10.late"),
        tried("S2.early", Outcome.SURVIVED),
        tried("S2.early", engine="other_server"),
        tried("S10.late", Outcome.NOT_APPLICABLE, engine="other_server"),
    ]
    text = with_faults(f"# Faults\n\n{BEGIN}\nold\n{END}\n\nend\n", trials)
    assert text.startswith(f"# Faults\n\n{BEGIN}\n\n|")
    assert text.endswith(f"2 of 3 killed.\n\n{END}\n\nend\n")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `S")]
    assert rows == [
        ["| `S2.early`", "survived", "`served_alone`: claims, free |"],
        ["| `S10.late`", "`served_alone`: claims, free", "not applicable |"],
    ]
    assert with_faults(text, trials) == text


def test_without_marks_it_is_the_table_alone():
    assert with_faults("# Faults\n", [tried("S1.x", Outcome.HIDDEN, why="it is wrong")]) == (
        "|  | `one_server/llama/float32` |\n|---|---|\n| `S1.x` | hidden: it is wrong |\n"
        "\n0 of 1 killed.\n"
    )
