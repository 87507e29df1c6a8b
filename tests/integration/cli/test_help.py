"""``--help``."""

import pytest


@pytest.mark.parametrize("command", ["run", "list", "show", "calibrate"])
def test_each_command_has_help(conformance, command):
    done = conformance(command, "--help")
    assert done.code == 0
    assert f"conformance {command}" in done.out


def test_help_loads_nothing_heavy(start):
    done = start(
        "-c",
        "import sys\n"
        "from conformance.app.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print('HEAVY', {'mlx', 'numpy', 'pytest', 'rich'} & set(sys.modules))",
        PYTHONPATH="",
    )
    assert "HEAVY set()" in done.out, done


def test_an_unknown_command_is_refused(conformance):
    done = conformance("ruin")
    assert done.code == 2
    assert "No such command 'ruin'" in done.err
