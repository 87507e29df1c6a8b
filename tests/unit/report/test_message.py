"""The message of a failure."""

import functools
import re

import pytest

from conformance.core.invocation import Invocation
from conformance.core.verdict import Verdict
from conformance.report.message import (
    defect_commands,
    failure_message,
    message_parts,
    rerun_command,
)


def parts(message):
    head, *lines = message.splitlines()
    return head, dict(re.fullmatch(r"  (\w+): +(.*)", line).groups() for line in lines)


def test_all_five_parts_in_order(result, finding):
    bad = result(verdict=Verdict.DIVERGED, evidence=(finding(),))
    head, reported = parts(failure_message(bad))
    assert head == "diverged: mlx_lm/llama/ragged/float32/0"
    assert list(reported) == ["what", "where", "expected", "cause", "rerun"]
    assert reported["what"] == "the token differs"
    assert reported["where"] == "schedule 'long_and_short', free run, request 'r2', step 7, row 1"
    assert reported["expected"] == (
        "token 17; got token 93 (difference 1.25, margin 0.42, noise 1.2e-05 nats)"
    )
    assert reported["cause"] == "left padding is not masked"
    assert reported["rerun"] == "conformance show mlx_lm/llama/ragged/float32/0"


def test_the_worst_finding_is_reported_and_the_others_are_counted(result, finding):
    evidence = (
        finding(Verdict.DRIFT, what="small"),
        finding(Verdict.NAN, what="first of the worst"),
        finding(Verdict.NAN, what="second of the worst"),
    )
    _, reported = parts(failure_message(result(verdict=Verdict.NAN, evidence=evidence)))
    assert reported["what"] == "first of the worst (and 2 more findings)"


def test_what_is_not_known_is_left_out(result, finding):
    sparse = finding(
        **dict.fromkeys(("schedule", "mode", "expected", "got", "cause"), ""),
        **dict.fromkeys(("request_id", "step", "row", "margin", "difference", "noise")),
    )
    _, reported = parts(failure_message(result(verdict=Verdict.DIVERGED, evidence=(sparse,))))
    assert reported["where"] == "the whole case"
    assert reported["expected"] == "exact or tie; got diverged"
    assert "not known" in reported["cause"]


def test_a_verdict_without_a_finding(result):
    _, reported = parts(failure_message(result(verdict=Verdict.VACUOUS)))
    assert reported["what"] == "the verdict is vacuous, without a finding"
    assert reported["expected"] == "exact or tie; got vacuous"


def test_an_unexpected_pass(result, finding):
    rule = finding(
        Verdict.EXACT, check="expectations", what="expectation x: wants drift, got exact"
    )
    good = result(expected=False, known="x", evidence=(rule,))
    _, reported = parts(failure_message(good))
    assert reported["what"] == (
        "passes, but the expectations name a defect for it; expectation x: wants drift, got exact"
    )
    assert reported["expected"] == "the verdict of the known defect; got exact"
    assert "fixed" in reported["cause"]


def test_a_broken_rule_is_reported_beside_the_finding(result, finding):
    rule = finding(Verdict.NAN, check="expectations", what="expectation x: wants drift, got nan")
    bad = result(verdict=Verdict.NAN, known="x", evidence=(rule, finding(Verdict.NAN)))
    _, reported = parts(failure_message(bad))
    assert reported["what"] == "the token differs; expectation x: wants drift, got nan"
    twice = result(verdict=Verdict.NAN, known="x", evidence=(rule, finding(Verdict.NAN), rule))
    assert parts(failure_message(twice))[1]["what"] == reported["what"]


def test_further_lines_of_a_text_stay_under_the_first(result, finding):
    message = failure_message(result(verdict=Verdict.CRASH, evidence=(finding(got="a\nb"),)))
    assert "\n            b (difference" in message


def test_commands_about_a_case_have_the_options_of_its_run(result):
    options = ("-p", "mine", "--family-file", "my model.json", "--no-expectations")
    bad = result("e/f/s/d/0", known="x", invocation=Invocation("", "", options))
    show = "conformance show -p mine --family-file 'my model.json' --no-expectations e/f/s/d/0"
    assert rerun_command(bad) == show
    assert dict(message_parts(bad))["rerun"] == show
    assert rerun_command(bad, options=()) == "conformance show e/f/s/d/0"
    assert defect_commands(bad) == ("conformance show defects -p mine x",)


def test_an_entry_that_does_not_fit_is_explained_by_a_command(result):
    fixed = dict(message_parts(result(expected=False, known="x, y")))
    assert fixed["cause"].endswith(
        "remove or narrow the entry; conformance show defects x; conformance show defects y"
    )
    other = dict(message_parts(result(verdict=Verdict.NAN, expected=False, known="x")))
    assert other["cause"].endswith("correct the entry; conformance show defects x")


def test_a_wrong_token_comes_before_what_may_follow_from_it(result, finding):
    evidence = (
        finding(Verdict.PROTOCOL, check="claims", what="usage"),
        finding(Verdict.DIVERGED, check="free", what="word 4 is 'cold', alone it is 'hand'"),
    )
    head, reported = parts(failure_message(result(verdict=Verdict.PROTOCOL, evidence=evidence)))
    assert head == "diverged: mlx_lm/llama/ragged/float32/0"
    assert reported["what"] == "word 4 is 'cold', alone it is 'hand' (and 1 more finding)"
    other = finding(Verdict.PROTOCOL, check="protocol", what="ends wrong", schedule="few")
    elsewhere = (other, finding(Verdict.DIVERGED, check="free", what="cold", schedule="many"))
    head, reported = parts(failure_message(result(verdict=Verdict.PROTOCOL, evidence=elsewhere)))
    assert head == "diverged: mlx_lm/llama/ragged/float32/0"
    assert (
        reported["what"] == "cold (and 1 more finding, one of them in schedule 'few': ends wrong)"
    )
    worse = (*evidence, finding(Verdict.HANG, check="failure", what="hangs"))
    _, reported = parts(failure_message(result(verdict=Verdict.HANG, evidence=worse)))
    assert reported["what"] == (
        "word 4 is 'cold', alone it is 'hand' (and 2 more findings, one of them: hangs)"
    )


def test_what_a_server_does_not_offer_is_no_more_finding(result, finding):
    lacks = finding(Verdict.UNSUPPORTED, got="NotOffered: stop: HTTP 400", schedule="stops")
    evidence = (lacks, finding(Verdict.PROTOCOL, check="claims", what="usage", schedule="alone"))
    _, reported = parts(failure_message(result(verdict=Verdict.PROTOCOL, evidence=evidence)))
    assert reported["what"] == "usage"


# In the order in which they lead: what, verdict, check.
LEADING = (
    ("crash", Verdict.CRASH, "failure"),
    ("word", Verdict.DIVERGED, "free"),
    ("draws", Verdict.DIVERGED, "statistics"),
    ("broke off", Verdict.PROTOCOL, "failure"),
    ("ends", Verdict.PROTOCOL, "protocol"),
    ("hangs", Verdict.HANG, "failure"),
    ("the text of a stream", Verdict.PROTOCOL, "claims"),
    ("usage", Verdict.PROTOCOL, "claims"),
    ("leak", Verdict.LEAK, "leak"),
    ("drift", Verdict.DRIFT, "forced"),
)


@pytest.mark.parametrize("less", LEADING[1:], ids=lambda row: row[0])
@pytest.mark.parametrize("schedule", ["same", "other"])
def test_what_leads_and_what_is_named_beside_it(result, finding, less, schedule):
    found = finding(less[1], check=less[2], what=less[0], schedule=schedule)
    for what, verdict, check in LEADING[: LEADING.index(less)]:
        lead = finding(verdict, check=check, what=what, schedule="same")
        most = max(verdict, less[1], key=lambda one: one.severity)
        said = parts(failure_message(result(verdict=most, evidence=(found, lead))))[1]["what"]
        assert said.startswith(f"{what} (and 1 more finding")
        place = f" in schedule {schedule!r}" if schedule == "other" else ""
        rest = {"the text of a stream", "usage", "leak", "drift"}
        same = {"ends", "the text of a stream", "usage"}
        follows = {"drift"} | (same if schedule == "same" else set())
        named = what in rest or less[0] not in follows
        assert said.endswith(f", one of them{place}: {less[0]})") is named


def test_what_stays_in_memory_and_what_is_about_another_thing_are_named(result, finding):
    claim = functools.partial(finding, Verdict.PROTOCOL, check="claims", cause="")
    memory, count = claim(what="memory that the server kept: 9"), claim(what="usage, step 3: 4")
    text, again = claim(what="a text, step 8: 'a'"), claim(what="usage, step 5: 4")
    token = finding(Verdict.DIVERGED, check="free", what="cold")
    for evidence, beside in (
        ((token, memory, count), "2 more findings, one of them: memory that the server kept: 9"),
        ((count, text, again), "2 more findings, one of them: a text, step 8: 'a'"),
        ((count, again), "1 more finding"),
    ):
        bad = result(verdict=Verdict.PROTOCOL, evidence=evidence)
        assert parts(failure_message(bad))[1]["what"] == f"{evidence[0].what} (and {beside})"


def test_a_reused_prefix_is_named_beside_the_wrong_token_of_its_schedule(result, finding):
    count = finding(Verdict.PROTOCOL, check="reuse", what="reused more")
    both = (count, finding(Verdict.DIVERGED, check="free", what="cold"))
    said = parts(failure_message(result(verdict=Verdict.PROTOCOL, evidence=both)))[1]["what"]
    assert said == "cold (and 1 more finding, one of them: reused more)"
    alone = result(verdict=Verdict.PROTOCOL, evidence=(count,))
    assert parts(failure_message(alone))[1]["what"] == "reused more"
