"""Properties of a result, and the JUnit file."""

from xml.etree import ElementTree as ET

import junitparser

from conformance.core.invocation import Invocation
from conformance.core.verdict import Verdict
from conformance.report.junit import junit_xml, properties
from conformance.report.outcome import Outcome


def test_figures_are_text_under_our_prefix(result):
    found = dict(properties(result(verdict=Verdict.DRIFT, first_bad_step=0, known="x")))
    assert found == {
        "conformance.case": "mlx_lm/llama/ragged/float32/0",
        "conformance.verdict": "drift",
        "conformance.expected": "false",
        "conformance.known": "x",
        "conformance.max_abs_diff": "0.5",
        "conformance.noise": "1e-05",
        "conformance.first_bad_step": "0",
        "conformance.forward_seconds": "0.25",
        "conformance.device": "cpu",
        "conformance.versions": "mlx 0.32.4, mlx-lm 0.32.2",
    }


def test_the_file_has_the_shape_that_the_schema_wants(result, finding):
    bad = result("e/a/x/d/0", Verdict.DIVERGED, evidence=(finding(),), seconds=1.0)
    known = result("e/b/x/d/0", Verdict.DRIFT, expected=True, known="padding")
    refused = finding(Verdict.UNSUPPORTED, what="no sinks")
    refused = result("e/c/x/d/0", Verdict.UNSUPPORTED, expected=True, evidence=(refused,))
    other = result("f/a/x/d/0")
    outcome = Outcome((bad, known, refused, other), problems=("novel is uncovered",))
    root = ET.fromstring(junit_xml(outcome))
    assert root.attrib == {"name": "conformance", "tests": "5", "failures": "2", "errors": "0"}
    counts = [[s.get(k) for k in ("name", "tests", "failures", "skipped")] for s in root]
    assert counts == [
        ["e d", "3", "1", "2"],
        ["f d", "1", "0", "0"],
        ["beside the cases", "1", "1", None],
    ]
    assert [[child.tag for child in case] for case in root.iter("testcase")] == [
        ["failure", "system-out"],
        ["skipped", "system-out"],
        ["skipped", "system-out"],
        ["system-out"],
        ["failure"],
    ]
    failure = root.find(".//failure")
    sentence = "a (e): 1 case fails, at `x`: the token differs."
    assert failure.attrib == {"type": "diverged", "message": sentence}
    assert failure.text.startswith(f"{sentence}\ndiverged: e/a/x/d/0\n")
    assert "rerun:    conformance show e/a/x/d/0" in failure.text
    assert [s.get("message") for s in root.iter("skipped")] == ["known: padding", "no sinks"]


def test_parsers_in_common_use_read_it(result, finding):
    bad = result("e/a/x/d/0", Verdict.CRASH, evidence=(finding(what="\x00\x1b[31m<&>]]>\ud800"),))
    text = junit_xml(Outcome((bad, result("e/\ufffe\"'/x/d/0"))))
    (suite,) = junitparser.JUnitXml.fromstring(text.encode())
    crash, exact = suite
    assert (suite.tests, suite.failures, suite.errors) == (2, 1, 0)
    assert "\ufffd\ufffd[31m<&>]]>\ufffd" in crash.result[0].message
    assert (exact.classname, exact.is_passed) == ("e.\ufffd\"'", True)
    assert "verdict: crash" in crash.system_out


def test_the_rerun_command_has_the_run_s_options(result):
    mine = Invocation("", "", ("--family-file", "my.json"))
    text = junit_xml(Outcome((result(verdict=Verdict.DRIFT, invocation=mine),)))
    assert "conformance show --family-file my.json" in text
