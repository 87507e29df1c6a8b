"""Known defects for readers: their causes, groups and releases."""

from defects_by_hand import entry, known

from conformance.core.known_defect import by_severity, releases
from conformance.core.severity import Severity
from conformance.core.verdict import Verdict


def test_a_long_cause_ends_at_a_semicolon():
    long = f"{'a' * 100}; {'b' * 100}. Two."
    causes = {
        "One (a.b). Two.": "One (a.b).",
        "no full stop": "no full stop",
        long: f"{'a' * 100}.",
    }
    for why, cause in causes.items():
        assert known(entry(why=why))[0].cause == cause


def test_defects_are_in_groups_of_one_kind_the_worst_first():
    crash = entry("crash", 2, families=("*",), verdicts={"ragged": Verdict.CRASH})
    found = by_severity(known(crash, entry()))
    assert [(kind, [one.id for one in group]) for kind, group in found.items()] == [
        (Severity.TOKENS, ["lost-state"]),
        (Severity.CRASH, ["crash"]),
    ]


def test_the_newest_release_of_each_package_is_the_largest_bound():
    vlm = entry("vlm", 2, package="mlx-vlm", versions="==0.7.10")
    older = entry("older", 3, package="mlx-vlm", versions=">=0.7.0,<=0.7.9")
    assert releases(known(entry(), vlm, older)) == {"mlx-lm": "0.32.2", "mlx-vlm": "0.7.10"}
