"""``--help``, of the command and of its groups."""

import re

import pytest

GROUPS = {
    "Prove": ["run", "smoke", "explore"],
    "Understand": ["show", "explain", "repro"],
    "Compare": ["diff", "report", "releases"],
    "Add": ["new"],
    "Maintain": ["golden", "known", "audit"],
}


def sections(text):
    """The names under each title of a help text, with the line of each."""
    found = {}
    for line in text.splitlines():
        if title := re.fullmatch(r"(\w+):", line):
            names = found[title[1]] = {}
        elif found and (row := re.fullmatch(r"  ([a-z-]+) +(\S.*)", line)):
            names[row[1]] = row[2]
    return found


def test_there_are_thirteen_commands_in_groups_each_with_one_line(conformance):
    done = conformance("--help", COLUMNS="80")
    assert done.code == 0
    found = sections(done.out)
    assert {title: list(found[title]) for title in GROUPS} == GROUPS
    assert sum(map(len, GROUPS.values())) == 13
    for title in GROUPS:
        assert all(line.endswith(".") or line.endswith("?") for line in found[title].values())


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("new", ["family", "engine"]),
        ("golden", ["check", "diff", "update", "verify", "export", "judge"]),
        ("known", ["lock", "refresh"]),
        ("audit", ["power", "mutants", "tiers", "calibrate", "caches", "functions", "bench"]),
    ],
)
def test_a_group_has_a_short_help_of_its_own(conformance, command, names):
    done = conformance(command, "--help", COLUMNS="80")
    assert done.code == 0
    assert list(sections(done.out)["Commands"]) == names
    assert len(done.out.splitlines()) < 20


def test_the_options_of_run_are_in_groups_the_ten_used_most_first(conformance):
    done = conformance("run", "--help", COLUMNS="80")
    options = done.out.partition("Options used most:")[2]
    titles = re.findall(r"^(\w.*):$", options, re.M)
    assert titles[0] == "Select"
    assert titles[-1] == "Other options"
    first, *others = re.split(r"^\w.*:$", options, flags=re.M)
    assert len(re.findall(r"^  -", first, re.M)) == 10
    assert max(len(re.findall(r"^  -", group, re.M)) for group in others) <= 6
    names = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", options, re.M)
    assert len(names) == len({*names}), "each option once"
    assert {"--engine", "--url", "--help"} <= {*names}


@pytest.mark.parametrize(
    "command", ["run", "show", "report", "audit calibrate", "golden export", "new family"]
)
def test_each_command_has_help(conformance, command):
    done = conformance(*command.split(), "--help")
    assert done.code == 0
    assert f"conformance {command}" in done.out


def test_help_loads_nothing_heavy(start):
    done = start(
        *("-u", "-c"),  # an option: in a Python of its own
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
    assert done.err == "conformance: there is no command 'ruin'; did you mean run?\n"
