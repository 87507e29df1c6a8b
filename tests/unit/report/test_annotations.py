"""Annotations of a GitHub run."""

import re

from conformance.core.verdict import Verdict
from conformance.report.annotations import MOST, error_annotations
from conformance.report.outcome import Outcome


def bad(result, finding, case, verdict=Verdict.DIVERGED, **changes):
    return result(case, verdict, evidence=(finding(verdict, **changes),))


def of(results, problems=()):
    return error_annotations(Outcome(tuple(results), ("repeat", "ragged")).cascades, problems)


def test_one_for_each_finding_and_the_other_cases_are_named(result, finding):
    found = of(
        [
            result("a/good/ragged/d/0"),
            result("a/known/ragged/d/0", Verdict.DRIFT, expected=True),
            bad(result, finding, "a/x/ragged/d/0"),
            bad(result, finding, "a/x/ragged/d/1"),
            bad(result, finding, "a/x/repeat/d/0", Verdict.CRASH),
            bad(result, finding, "b/x/ragged/d/0"),
        ]
    )
    assert found == (
        "::error title=conformance a/x::x (a): 1 case fails, at `repeat`: the token differs.%0A"
        "crash: a/x/repeat/d/0%0Arerun: conformance show a/x/repeat/d/0",
        "::error title=conformance a/x::x (a): 2 cases fail, first at `ragged`: the token differs."
        "%0Adiverged: a/x/ragged/d/0%0Arerun: conformance show a/x/ragged/d/0"
        "%0Aand 1 more: a/x/ragged/d/1",
        "::error title=conformance b/x::x (b): 1 case fails, at `ragged`: the token differs.%0A"
        "diverged: b/x/ragged/d/0%0Arerun: conformance show b/x/ragged/d/0",
    )


def test_ten_at_most_and_the_last_says_how_many_more(result, finding):
    many = [
        bad(result, finding, f"e/f{n:02}/ragged/d/0", Verdict.LEAK, check=f"c{n}")
        for n in range(30)
    ]
    assert len(of(many[:MOST])) == MOST
    found = of(many)
    assert len(found) == MOST
    assert found[-1].startswith("::error title=conformance 21 more findings::e/f09, e/f10")
    assert "and 1 more: 21 cases not as expected" in found[-1]
    with_problem = of(many, ("novel is uncovered",))
    assert len(with_problem) == MOST
    assert with_problem[-1] == "::error title=conformance beside the cases::novel is uncovered"


def test_a_name_cannot_give_a_command_of_its_own(result, finding):
    evil = "e/a,b:c%0A\r\n::set-env name=x::y/ragged/d/0"
    (found,) = of([bad(result, finding, evil, what="50 %\r\n::stop-commands::x")])
    assert not re.search(r"[\r\n]", found)
    title = found.removeprefix("::error title=").partition("::")[0]
    assert title == "conformance e/a%2Cb%3Ac%250A %3A%3Aset-env name=x%3A%3Ay"
    assert "50 %25 ::stop-commands::x" in found


def test_nothing_wrong_nothing_reported(result):
    assert of([result()]) == ()


def test_a_known_defect_has_the_command_that_explains_it(result, finding):
    case = ("a/x/ragged/d/0", Verdict.CRASH)
    known = result(*case, known="lost-state, behind", evidence=(finding(Verdict.CRASH),))
    (one,) = of([known])
    assert "%0Aknown: conformance show defects lost-state%0Aknown: " in one
    assert one.endswith("%0Aknown: conformance show defects behind")
