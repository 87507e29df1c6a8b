"""Lines that schedules run."""

from pathlib import Path

from conformance.core.family import Facts, Family
from conformance.power.mutants.reach import (
    Map,
    Place,
    Reach,
    ReachFolder,
    gaps,
    merged,
    ranges,
    reach_key,
    span,
)
from conformance.power.mutants.reviewed import Reviewed, Unreached
from conformance.report.mutants import Mutant

ONE = Place("mlx_lm/llama/ragged/float32/0", "a", 0.1, good=True)
TWO = Place("mlx_lm/llama/wide/float32/0", "b", 0.2, good=True)


def reach(key="k"):
    sets = (f"{span(3, 5):x}", f"{span(9, 9):x}")
    single = {"m.py": f"{span(3, 3):x}"}
    return Reach(key, "mlx_lm", "llama", single, (ONE, TWO), ({"m.py": 0}, {"m.py": 1}), sets)


def mutant(first, last, module="m.py"):
    return Mutant(module, "f", "number", "a", "b", first, (first, last), 0, 1, "")


def test_a_mutant_is_reached_where_a_line_of_its_statement_runs():
    where = Map([reach()])
    assert where.reached(mutant(5, 8)).places == (ONE,)
    assert where.reached(mutant(5, 9)).places == (ONE, TWO)
    assert where.reached(mutant(6, 8)).places == ()
    assert where.reached(mutant(3, 9, "other.py")).places == ()


def test_the_record_of_a_family_is_put_together_of_parts():
    one = reach()
    other = Reach(
        "k",
        "mlx_lm",
        "llama",
        {"m.py": f"{span(7, 7):x}", "n.py": "2"},
        (ONE, TWO),
        ({"m.py": 0}, {"n.py": 1}),
        (f"{span(9, 9):x}", f"{span(1, 1):x}"),
    )
    whole = merged([one, other])
    assert whole.places == (ONE, TWO, ONE, TWO)
    assert whole.sets == (*one.sets, f"{span(1, 1):x}")
    assert whole.of("m.py") == (*one.of("m.py"), *other.of("m.py"))
    assert whole.of("n.py") == (0, 0, 0, span(1, 1))
    assert whole.single == {"m.py": f"{span(3, 3) | span(7, 7):x}", "n.py": "2"}
    assert merged([one]) == one


def test_what_the_single_stream_runs_is_known():
    where = Map([reach()])
    assert where.reached(mutant(3, 3)).families == {"llama"}
    assert where.reached(mutant(4, 4)).families == frozenset()


def test_lines_are_shown_as_ranges():
    assert list(ranges(Map([reach()]).lines("m.py"))) == [(3, 5), (9, 9)]
    assert list(ranges(0)) == []


def test_a_reach_is_kept_by_its_key(tmp_path):
    folder = ReachFolder(tmp_path / "made")
    assert folder.read("mlx_lm", "llama", "k") is None
    folder.write(reach())
    assert folder.read("mlx_lm", "llama", "k") == reach()
    assert folder.read("mlx_lm", "llama", "another") is None
    (tmp_path / "made" / "mlx_lm-llama.reach.json").write_text("{")
    assert folder.read("mlx_lm", "llama", "k") is None


def test_a_key_hangs_on_the_family_the_seed_and_the_files(tmp_path):
    def key(size=1, seed=0, name="m.py"):
        family = Family("calm", Facts(library="mlx_lm"), {"size": size})
        return reach_key(family, {name: Path(__file__)}, seed)

    assert key() == key()
    assert len({key(), key(size=2), key(seed=1), key(name="n.py")}) == 4


TEXT = '''\
X = 1


def f(a):
    """Text."""
    if a:
        b = 1

        c = 2
    return a


class A:
    def g(self):
        return 1
'''
PLACE = Place("mlx_lm/llama/ragged/float32/0", "a", 0.1, good=True)


def where(*lines):
    bits = sum(span(n, n) for n in lines)
    return Map([Reach("k", "l", "llama", {}, (PLACE,), ({"m.py": 0},), (f"{bits:x}",))])


def found(*lines, reviewed=None):
    return list(gaps("m.py", TEXT, where(*lines), reviewed or Reviewed()))


def test_lines_with_code_that_do_not_run_are_named():
    (gap,) = found(6, 10, 15)
    assert (gap.function, gap.text, gap.missing, gap.of) == ("f", "7-9", 2, 4)


def test_a_method_that_never_runs_is_named_with_its_class():
    (gap,) = found(6, 7, 9, 10)
    assert (gap.function, gap.text, gap.missing, gap.of) == ("A.g", "15", 1, 1)


def test_nothing_is_missing_where_all_runs():
    assert found(6, 7, 9, 10, 15) == []


def test_a_reviewed_reason_is_given():
    reviewed = Reviewed(unreached=(Unreached("m.py", "A.*", "nobody calls it"),))
    assert [gap.reason for gap in found(reviewed=reviewed)] == ["", "nobody calls it"]
