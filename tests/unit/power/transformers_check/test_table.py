"""The tables of all results."""

from conformance.power.transformers_check.check_results import (
    Explained,
    Reading,
    Result,
    State,
)
from conformance.power.transformers_check.table import BEGIN, END, markdown, placed

GOOD, BAD = Reading(1.25, 1e-5, 1e-5), Reading(400.0, 4e-3, 1e-5, 0)
RESULTS = [
    Result("mlx_lm", "llama", "llama", State.AGREES, reading=GOOD, stream=GOOD, adjusted=("why",)),
    Result(
        "mlx_lm",
        "gemma",
        "gemma",
        State.DISAGREES,
        reading=BAD,
        proof=GOOD,
        tokens=(1, 2),
        library_tokens=(1, 3),
        causes=(Explained("mlx_lm", "mlx_lm/models/gemma.py:98", "wrong GELU"),),
    ),
    Result("mlx_lm", "glm", "glm", State.DISAGREES, reading=BAD),
    Result("mlx_lm", "exaone", "exaone", State.ABSENT, words="no model type 'exaone'"),
]


def rows(text, name):
    return [line for line in text.splitlines() if line.startswith(f"| {name} |")]


def test_each_family_has_a_row():
    text = markdown(RESULTS)
    assert "| llama | 1.25 | 1.0e-05 | 1.25 |" in rows(text, "llama")[0]
    assert "| mlx_lm | 400 | 4.0e-03 | 1 2 | 1 3 | 1.25 |" in rows(text, "gemma")[0]
    assert "not explained" in rows(text, "glm")[0]
    assert "no model type 'exaone'" in rows(text, "exaone")[0]
    assert "| mlx_lm | `mlx_lm/models/gemma.py:98` | wrong GELU | gemma |" in text
    assert "- llama: why" in text


def test_the_ratios_of_right_and_wrong_are_reported_apart():
    assert "that agree 1.25 to 1.25" in markdown(RESULTS)
    assert "that disagree 400 to 400" in markdown(RESULTS)


def test_only_what_is_between_the_marks_is_replaced():
    before = f"# Head\n\n{BEGIN}\nyesterday\n{END}\n\ntail\n"
    after = placed(before, markdown(RESULTS))
    assert after.startswith("# Head\n\n" + BEGIN)
    assert after.endswith(END + "\n\ntail\n")
    assert "yesterday" not in after
    assert placed(after, markdown(RESULTS)) == after


def test_a_file_without_marks_becomes_the_table():
    assert placed("anything", markdown(RESULTS)) == markdown(RESULTS)
