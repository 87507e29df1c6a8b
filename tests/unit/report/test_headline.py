"""The one sentence about failures with one cause."""

from conformance.core.verdict import Finding, Verdict
from conformance.report.headline import ODD_ONE_OUT, headline
from conformance.report.message import DIAGNOSIS


def bad(result, finding, *more, case="e/a/ragged/d/0", **changes):
    return result(case, Verdict.DRIFT, evidence=(finding(**changes), *more))


def test_engine_and_dtype_are_named_where_a_run_has_several(result, finding):
    one = (bad(result, finding),)
    assert headline(one, None).startswith("a: 1 case fails, at `ragged`: ")
    assert headline(one, None, lanes={("e", "d"), ("f", "d")}).startswith("a (e): ")
    assert headline(one, None, lanes={("e", "d"), ("e", "h")}).startswith("a (d): ")


def test_it_is_one_line_and_not_a_long_one(result, finding):
    text = headline((bad(result, finding, what="one\n\ntwo. " * 200),), None)
    assert "\n" not in text
    assert len(text) < 300
    assert "one two" in text


def test_a_single_stream_that_stands_alone_is_said(result, finding):
    alone = Finding(Verdict.EXACT, DIAGNOSIS, f"{ODD_ONE_OUT}: every engine gives token 5")
    text = headline((bad(result, finding, alone),), None)
    assert text.endswith(". The single stream is the odd one out.")


def test_a_verdict_without_a_finding_is_said_as_it_is(result):
    text = headline((result("e/a/ragged/d/0", Verdict.HANG),), None)
    assert text == "a: 1 case fails, at `ragged`: the verdict is hang, without a finding."
