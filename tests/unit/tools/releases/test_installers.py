"""What the commands of an installer print, read; they themselves: tests/integration."""

from datetime import UTC, datetime

import pytest

from conformance.core.errors import ReleaseError
from conformance.core.processes import Done
from conformance.tools.releases import installers

DAY = datetime(2026, 8, 1, tzinfo=UTC)


@pytest.fixture
def printing(monkeypatch):
    """Lets each command print a text; the commands that were called."""
    calls = []

    def use(text, *, uv, code=0, wrong=""):
        def run(command, **_):
            calls.append(command)
            return Done(code, text, wrong)

        monkeypatch.setattr(installers, "find_uv", lambda: "uv" if uv else None)
        monkeypatch.setattr(installers, "run_to_end", run)
        return calls

    return use


def test_uv_is_bound_by_the_day_and_its_lines_are_read(printing):
    calls = printing("mlx==0.32.0\nnumpy==2.4.6 ; python_version > '3.8'\n--hash x\n", uv=True)
    assert installers.solve(["mlx-lm==1"], DAY) == {"mlx": "0.32.0", "numpy": "2.4.6"}
    (command,) = calls
    assert command[command.index("--exclude-newer") + 1] == DAY.isoformat()


@pytest.mark.parametrize("bounded", [True, False])
def test_pip_is_bound_by_the_day_if_it_can_be(printing, monkeypatch, bounded):
    report = '{"install": [{"metadata": {"name": "MLX_lm", "version": "0.31.3"}}]}'
    calls = printing(report, uv=False)
    known = "--uploaded-prior-to" if bounded else ""
    monkeypatch.setattr(installers, "_help", lambda pip: known)
    assert installers.solve(["mlx-lm==1"], DAY) == {"mlx-lm": "0.31.3"}
    (command,) = calls
    assert ("--uploaded-prior-to" in command) is bounded


def test_a_conflict_is_noted_whole_in_one_line(printing):
    long = "because " + "a depends on b and " * 200 + "we can conclude"
    printing("", uv=True, code=1, wrong=f"  \u00d7 No solution:\n  \u2570\u2500\u25b6 {long}")
    with pytest.raises(ReleaseError) as caught:
        installers.solve([], DAY)
    assert caught.value.args[0] == f"No solution: {long}"
