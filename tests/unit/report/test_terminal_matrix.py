"""A matrix in terminals of several widths."""

import pytest

from conformance.core.verdict import Verdict
from conformance.report.matrix import matrices
from conformance.report.terminal_matrix import FEW_FAMILIES, legend_text, matrix_text

SCENARIOS = [f"scenario_{n:02}" for n in range(30)]
LONG = "a_family_of_24_letters__"


def matrix_of(result, families, scenarios=SCENARIOS):
    found = [
        result(f"engine/{f}/{s}/float32/0", Verdict.DRIFT if int(s[-2:]) == 7 else Verdict.EXACT)
        for f in families
        for s in scenarios
    ]
    return matrices(found)[0]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_no_line_is_longer_than_the_terminal_and_no_cell_is_lost(result, width):
    found = matrix_of(result, ["llama", LONG])
    lines = matrix_text(found, width).plain.splitlines()
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.startswith("  llama ")]
    assert "".join(row.replace("llama", "").replace(" ", "") for row in rows) == (
        "." * 7 + "~!" + "." * 22
    )


@pytest.mark.parametrize("width", [40, 80])
def test_each_block_has_the_names_of_its_columns(result, width):
    text = matrix_text(matrix_of(result, ["llama"]), width).plain
    lines = text.splitlines()
    names = []
    for index, line in enumerate(lines):
        if line.startswith("  llama"):
            columns = [i for i, glyph in enumerate(line) if glyph in ".~" and i > 8]
            header = lines[index - len(SCENARIOS[0]) : index]
            names += ["".join(f"{part:<{width}}"[i] for part in header) for i in columns]
    assert [name.replace("|", "_") for name in names] == SCENARIOS


def test_a_wide_terminal_has_one_block(result):
    assert matrix_text(matrix_of(result, ["llama"]), 120).plain.count("  llama") == 1


def test_a_long_name_is_cut_only_where_there_is_no_room(result):
    found = matrix_of(result, [LONG])
    assert LONG in matrix_text(found, 40).plain
    assert LONG[:12] + ".." in matrix_text(found, 26).plain


def test_every_family_is_shown_if_asked_for(result):
    names = [f"f{n:03}" for n in range(FEW_FAMILIES + 5)]
    found = matrix_of(result, names, SCENARIOS[:3])
    assert "f003" not in matrix_text(found, 80).plain
    assert "f003" in matrix_text(found, 80, every_family=True).plain


@pytest.mark.parametrize("width", [40, 80])
def test_the_legend_fits_too(result, width):
    found = [result(f"e/{v}/x/d/0", v) for v in Verdict]
    text = legend_text(matrices(found), width).plain
    assert max(map(len, text.splitlines())) <= width
    assert all(f" {verdict}" in text for verdict in Verdict)
    assert "! not expected" in text
