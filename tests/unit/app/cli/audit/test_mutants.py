"""What became of mutants, in the terminal."""

import io

from rich.console import Console

from conformance.app.cli.audit.mutants import print_gaps, print_results, survivors
from conformance.power.mutants.reach import Gap
from conformance.report.mutants import Fate, Mutant, MutantResult


def result(fate, *, before="x = 1", library="mlx_lm", unplayed=0, module=""):
    mutant = Mutant(
        module or f"{library}/m.py", "A.f", "number", before, "x = 2", 7, (7, 7), 70, 71, "2"
    )
    return MutantResult(mutant, library, fate, {}, None, 3, 5, unplayed)


def printed(function, *arguments, width=160, **options):
    file = io.StringIO()
    function(Console(file=file, width=width), *arguments, **options)
    return file.getvalue()


def test_each_library_has_a_table_and_a_sentence():
    text = printed(print_results, [result(Fate.KILLED), result(Fate.SURVIVED, library="mlx_vlm")])
    reached = "mutants that are reached and not equivalent were killed"
    assert f"OK: mlx_lm: 1 of 1 {reached} (100.0%)" in text
    assert f"FAILED: mlx_vlm: 0 of 1 {reached} (0.0%)" in text
    assert text.index("mlx_lm ") < text.index("mlx_vlm ")
    assert text.count("\nm.py ") == 2


def test_modules_keep_their_names_in_a_narrow_terminal():
    modules = ("mlx_lm/models/gated_delta.py", "mlx_lm/models/rope_utils.py")
    found = [result(Fate.KILLED, module=module) for module in modules]
    text = printed(print_results, [*found, result(Fate.UNREACHED)], width=80)
    assert "models/gated_delta.py" in text
    assert "models/rope_utils.py" in text
    assert "equivalent" not in text.splitlines()[1]


def test_a_survivor_says_what_it_changes_and_what_was_not_played():
    lines = list(survivors([result(Fate.SURVIVED, unplayed=2), result(Fate.KILLED)]))
    assert lines == [
        "survived: mlx_lm/m.py:7 A.f (number)",
        "  - x = 1",
        "  + x = 2",
        "  3 of 5 schedules played, 2 cases more reach it",
    ]


def test_long_lines_are_cut():
    lines = list(survivors([result(Fate.SURVIVED, before="x" * 500)]))
    assert max(map(len, lines)) < 170


def test_gaps_with_a_reason_are_counted():
    gaps = [
        Gap("m.py", "f", ((3, 4),), 2, 9, ""),
        Gap("m.py", "g", ((7, 7),), 1, 1, "nobody calls it"),
    ]
    text = printed(print_gaps, gaps)
    assert "unreached: m.py f: 2 of 9 lines: 3-4\n" in text
    assert "unreached: m.py g: 1 of 1 lines: 7: nobody calls it" in text
    assert "3 lines are not reached in 2 functions; 1 have a reason" in text
