"""What commands print."""

import io
import os
import subprocess
import sys

import pytest
from rich.table import Table

from conformance.app.cli.consoles import new_console
from conformance.app.cli.printing import say

HOSTILE = "a\x1b[2J[bold]\n::error::b"


def test_text_of_files_is_no_command(capsys):
    say(HOSTILE)
    assert capsys.readouterr().out == "a\\x1b[2J[bold]\n\\::error::b\n"


def test_a_console_keeps_its_own_colours_alone():
    out = io.StringIO()
    console = new_console(file=out, force_terminal=True, color_system="standard", width=60)
    table = Table("name")
    table.add_row(HOSTILE)
    console.print(table)
    console.print(HOSTILE, style="red")
    assert "\x1b[2J" not in out.getvalue()
    assert "\\x1b[2J[bold]" in out.getvalue()
    assert "\x1b[31m" in out.getvalue()


PRINTS = (
    "from conformance.app.cli import printing; import sys; printing.use_streams(); "
    "[printing.say('x' * 100) for _ in range(2000)]; print(printing.output_problem(), "
    "file=sys.stderr)"
)


@pytest.mark.parametrize(
    ("redirection", "problem"),
    [("| head -1", "None"), (">&-", "None"), ("> /dev/full", "standard output: No space left on")],
)
def test_output_that_nobody_takes_ends_nothing(redirection, problem):
    if "full" in redirection and not os.path.exists("/dev/full"):  # noqa: PTH110
        pytest.skip("a device of Linux")
    done = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -c "$1" {redirection}', "bash", PRINTS],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.startswith(problem), done
