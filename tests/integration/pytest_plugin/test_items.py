"""Cases as items: names, markers, failures, JUnit."""

from xml.etree import ElementTree

import pytest


def test_an_item_is_called_like_its_case(suite):
    done = suite("--conformance-family", "calm", "--collect-only", "-q")
    assert done.out.splitlines()[:3] == [
        "conformance.suite.cases::toy/calm/repeat/float32/0",
        "conformance.suite.cases::toy/calm/ragged/float32/0",
        "conformance.suite.cases::toy/calm/staggered/float32/0",
    ]


def test_one_case_by_its_id(start):
    node = "conformance.suite.cases::toy/calm/ragged/float32/0"
    done = start("-m", "pytest", "--pyargs", node, "--conformance-engine", "toy")
    assert "1 passed" in done.out, done


def test_keywords_select(suite):
    assert "1 passed" in suite("-k", "calm and ragged").out


@pytest.mark.parametrize("options", [(), ("-n", "1")])
def test_keywords_that_select_nothing_are_no_success(suite, tmp_path, options):
    (tmp_path / "r.jsonl").write_text("old\n")
    done = suite("-k", "tpyo", "--conformance-json", "r.jsonl", *options, TOY_FAMILIES="calm")
    assert done.code == pytest.ExitCode.NO_TESTS_COLLECTED, done
    assert "NOTHING RUN: no case was played" in done.out
    assert (tmp_path / "r.jsonl").read_text() == "old\n"


def test_markers_are_registered_and_set(suite):
    done = suite("--conformance-family", "calm", "--strict-markers", "-m", "conformance")
    assert "3 passed" in done.out, done


def test_a_failure_is_the_message_without_a_traceback(suite):
    done = suite("--conformance-family", "broken")
    assert done.code == 1
    text = done.out[done.out.index("= FAILURES =") :]
    lines = text[: text.index("= conformance =")].splitlines()[2:-1]
    assert lines[0] == "diverged: toy/broken/ragged/float32/0"
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        "what",
        "where",
        "expected",
        "cause",
        "rerun",
    ]


def test_junit_has_the_figures(suite, tmp_path):
    suite("--conformance-family", "broken", "--junitxml", "j.xml", "-n", "2")
    cases = {
        case.get("name"): case for case in ElementTree.parse(tmp_path / "j.xml").iter("testcase")
    }
    broken = cases["toy/broken/ragged/float32/0"]
    figures = {p.get("name"): p.get("value") for p in broken.iter("property")}
    assert figures["conformance.verdict"] == "diverged"
    assert figures["conformance.expected"] == "false"
    assert figures["conformance.max_abs_diff"] == "1.25"
    assert figures["conformance.device"] == "abacus"
    assert broken.find("failure") is not None
    assert cases["toy/broken/repeat/float32/0"].find("failure") is None


def test_coverage_is_an_item(suite):
    done = suite("-v", TOY_FAMILIES="calm", TOY_MODULES="novel")
    assert "coverage[toy] FAILED" in done.out
    assert "reasoned exclusion: novel" in done.out
    assert "1 failed, 3 passed" in done.out


def test_a_part_of_the_cases_has_no_coverage_item(suite):
    assert "coverage[" not in suite("--conformance-family", "calm", "-v").out
