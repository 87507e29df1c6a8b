"""Lines that no schedule runs."""

from conformance.power.mutants.reach import Map, Place, Reach, span
from conformance.power.mutants.reviewed import Reviewed, Unreached
from conformance.power.mutants.unreached import gaps

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
