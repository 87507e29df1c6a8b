"""Results as JUnit XML: the project's own file, and the properties for pytest's.

Source: the schema of Jenkins' xUnit plugin (``junit-10.xsd``), the strictest in common use. It has
no properties of a test case, so the figures are in ``system-out``.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from conformance.core.grouping import grouped
from conformance.core.verdict import CaseResult, Verdict
from conformance.report.cascades import Cascade, by_case
from conformance.report.message import failure_message, new_verdict, worst
from conformance.report.outcome import Outcome, count

# Considered instead: junitparser 5.0, with which the tests read these files. It would count
# failures (some ten lines), but checks no characters, and would have to be installed for each run;
# junit-xml had its last release in 2020.
PREFIX = "conformance."

# Characters that XML 1.0 cannot represent.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def properties(result: CaseResult) -> list[tuple[str, str]]:
    """The figures of a result for a JUnit file; unknown ones are left out."""
    values = {
        "case": result.case,
        "verdict": str(result.verdict),
        "expected": str(result.expected).lower(),
        "known": result.known,
        "max_abs_diff": result.max_abs_diff,
        "noise": result.noise,
        "ratio": result.ratio,
        "first_bad_step": result.first_bad_step,
        "forward_seconds": round(result.forward_seconds, 6),
        "device": result.device,
        "versions": ", ".join(f"{name} {version}" for name, version in result.versions.items()),
    }
    return [(PREFIX + name, str(value)) for name, value in values.items() if value is not None]


def junit_xml(outcome: Outcome) -> str:
    """The file: one suite for each engine and dtype, and one for problems outside of cases.

    An unexpected verdict is a failure, whose message is the sentence of its finding: systems that
    group by message show one. Unsupported cases and known defects are skipped with the reason:
    neither has passed.
    """
    results, problems = outcome.results, outcome.problems
    if outcome.missing:
        problems = (*problems, f"{count(outcome.missing, 'planned case')} not run")
    causes = by_case(outcome.cascades)
    root = ET.Element("testsuites", name="conformance")
    for name, lane in grouped(results, lambda one: f"{one.engine} {one.dtype}").items():
        suite = _suite(root, name, len(lane), sum(not r.expected for r in lane))
        suite.set("skipped", str(sum(r.expected and not r.verdict.good for r in lane)))
        suite.set("time", _seconds(sum(r.seconds for r in lane)))
        for result in lane:
            _case(suite, result, causes.get(result.case))
    if problems:
        suite = _suite(root, "beside the cases", len(problems), len(problems))
        for number, problem in enumerate(problems, start=1):
            case = ET.SubElement(suite, "testcase", name=f"problem {number}", time="0.000")
            ET.SubElement(case, "failure", type="problem", message=_legal(problem))
    failures = len(problems) + sum(not r.expected for r in results)
    root.set("tests", str(len(results) + len(problems)))
    root.set("failures", str(failures))
    root.set("errors", "0")
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, "unicode") + "\n"


def _suite(root: ET.Element, name: str, tests: int, failures: int) -> ET.Element:
    counts = {"tests": str(tests), "failures": str(failures), "errors": "0"}
    return ET.SubElement(root, "testsuite", {"name": _legal(name), **counts})


def _case(suite: ET.Element, result: CaseResult, cause: Cascade | None) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        name=_legal(f"{result.scenario}/{result.dtype}/{result.seed}"),
        classname=_legal(f"{result.engine}.{result.family}"),
        time=_seconds(result.seconds),
    )
    verdict = str(result.verdict)
    if cause is not None:
        message = _legal(cause.sentence)
        kind = str(new_verdict(result))
        failure = ET.SubElement(case, "failure", type=kind, message=message)
        text = f"{cause.sentence}\n{failure_message(result)}"
        failure.text = _legal(text)
    elif not result.verdict.good:
        finding = worst(result)
        what = finding.what if finding else verdict
        reason = what if result.verdict is Verdict.UNSUPPORTED else f"known: {result.known}"
        ET.SubElement(case, "skipped", type=verdict, message=_legal(reason))
    lines = (f"{name.removeprefix(PREFIX)}: {value}" for name, value in properties(result))
    ET.SubElement(case, "system-out").text = _legal("\n".join(lines))


def _legal(text: str) -> str:
    """``text`` with characters that XML cannot represent replaced by U+FFFD."""
    return _ILLEGAL.sub("\ufffd", text)


def _seconds(value: float) -> str:
    return f"{value:.3f}"
