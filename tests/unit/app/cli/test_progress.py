"""How far a run is, on terminals of several widths and on none."""

import io
from types import SimpleNamespace

import pytest
from results_by_hand import make_result
from rich.console import Console

from conformance.app.cli import progress as module
from conformance.app.cli.output_options import Verbosity
from conformance.app.cli.progress import Progress
from conformance.app.pytest_plugin.options import ATTRIBUTES, RESULT
from conformance.core.verdict import Verdict, encode

CASES = 40


def report(number, verdict=Verdict.EXACT):
    result = make_result(f"e/f{number}/ragged/float32/0", verdict)
    return SimpleNamespace(**{ATTRIBUTES[RESULT]: encode(result)})


@pytest.fixture
def play(monkeypatch):
    """All that a run of 20 of 40 cases writes, of which the tenth is wrong; each takes a minute."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    collector = SimpleNamespace(
        selected=CASES,
        # The first 20 take twice as long.
        recorded_seconds=lambda: {
            f"e/f{n}/ragged/float32/0": 2.0 if n < CASES / 2 else 1.0 for n in range(CASES)
        },
        pytest_report_header=lambda: ["on an abacus", "40 cases"],
        expected_seconds=lambda processes: 1800.0 / processes,
    )
    monkeypatch.setattr(module, "find_collector", lambda config: collector)

    def run(*, terminal, width, verbosity=Verbosity.NORMAL, each=60.0):
        clock.now = 0.0
        buffer = io.StringIO()
        console = Console(file=buffer, force_terminal=terminal, width=width, color_system=None)
        shown = Progress(console, verbosity)
        config = SimpleNamespace(option=SimpleNamespace(maxfail=0))
        shown.pytest_sessionstart(SimpleNamespace(config=config))
        shown.pytest_collection_finish(SimpleNamespace(items=[1]))
        for number in range(20):
            clock.now += each
            shown.pytest_runtest_logreport(
                report(number, Verdict.DRIFT if number == 9 else Verdict.EXACT)
            )
        shown.pytest_sessionfinish()
        return buffer.getvalue()

    return run


def test_where_there_is_no_terminal_it_says_now_and_then_how_long_it_will_take(play):
    lines = play(terminal=False, width=80).splitlines()
    assert lines[:2] == ["on an abacus", "40 cases; about 30 min 00 s, by recorded times"]
    assert "20/40 cases, 1 not expected, 20 min 00 s, 10 min 00 s left" in lines
    assert "drift: e/f9/ragged/float32/0" in lines


@pytest.mark.parametrize("terminal", [True, False])
def test_a_failing_case_is_named_before_the_summary_where_the_run_takes_longer(play, terminal):
    named = "drift: e/f9/ragged/float32/0"
    assert named not in play(terminal=terminal, width=80, each=0.4)
    assert named in play(terminal=terminal, width=80, each=0.6)
    assert named in play(terminal=terminal, width=80, each=0.4, verbosity=Verbosity.VERBOSE)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_terminal_s_line_is_never_broken_and_shows_the_time_left(play, width):
    text = play(terminal=True, width=width)
    shown = [part for line in text.split("\n") for part in line.split("\r")]
    plain = [module.Text.from_ansi(part).plain for part in shown]
    assert max(len(part) for part in plain if "recorded times" not in part) <= width
    assert any("20/40" in part and "10 min 00 s left" in part for part in plain)


def test_quiet_says_nothing_and_verbose_every_case(play):
    for terminal in (True, False):
        assert play(terminal=terminal, width=80, verbosity=Verbosity.QUIET) == ""
    text = play(terminal=False, width=80, verbosity=Verbosity.VERBOSE)
    assert text.count("exact: e/f") == 19
    assert "drift: e/f9/ragged/float32/0  0.50 s" in text
