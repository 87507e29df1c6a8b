"""How a run is cut for a cluster."""

from conformance.app.cluster.parts import parts_of
from conformance.core.verdict import CaseId
from conformance.run.family_seconds import FamilySeconds

SECONDS = FamilySeconds({"a": 100.0, "b": 10.0})


def made(family, count):
    return [CaseId("toy", family, f"s{number}", "float32", 0) for number in range(count)]


def test_a_long_family_is_cut_into_equal_parts_and_the_longest_come_first():
    cases = [*made("b", 2), *made("a", 10)]
    parts = parts_of(cases, lambda case: case.family, SECONDS, most=50.0)
    assert [(part.group, len(part.cases), part.seconds) for part in parts] == [
        ("a", 5, 50.0),
        ("a", 5, 50.0),
        ("b", 2, 10.0),
    ]
    assert sorted(str(case) for part in parts for case in part.cases) == sorted(map(str, cases))


def test_no_part_is_without_a_case():
    parts = parts_of(made("a", 3), lambda case: case.family, SECONDS, most=1.0)
    assert [len(part.cases) for part in parts] == [1, 1, 1]
    assert parts_of([], lambda case: case.family, SECONDS) == []
