"""The file of reviewed mutants."""

import re

import pytest

from conformance.core.errors import ConformanceError
from conformance.power.mutants.definitions import without_default
from conformance.power.mutants.reviewed import read_reviewed
from conformance.power.mutants.targets import BATCHING, files_of, mutants_in
from conformance.report.mutants import Mutant

ASKED = re.compile(r"getattr\(|\.get\(|\.pop\(|next\(")

TEXT = """
[[equivalent]]
module = "m.py"
function = "A.f"
before = "x = 1"
after = "x = 2"
reason = "x is not used"

[[unreached]]
module = "m*.py"
function = "A.*"
reason = "another machine's"
"""


def mutant(after="x = 2", function="A.f"):
    return Mutant("m.py", function, "number", "x = 1", after, 7, (7, 7), 0, 1, "2")


@pytest.fixture
def reviewed(tmp_path):
    (tmp_path / "r.toml").write_text(TEXT)
    return read_reviewed(tmp_path / "r.toml")


def test_an_entry_names_a_mutant_by_the_text_of_its_lines(reviewed):
    assert reviewed.equivalence(mutant()) == "x is not used"
    assert reviewed.equivalence(mutant("x = 3")) == ""
    assert reviewed.equivalence(mutant(function="A.g")) == ""


def test_a_function_may_have_a_reason_not_to_be_reached(reviewed):
    assert reviewed.why_unreached("model.py", "A.f") == "another machine's"
    assert reviewed.why_unreached("model.py", "B.f") == ""


def test_parts_of_the_text_may_be_left_open(tmp_path):
    (tmp_path / "r.toml").write_text(
        '[[equivalent]]\nmodule = "m.py"\nfunction = "A.*"\nbefore = "x = <any>"\n'
        'reason = "x is not used"\noperator = "num*"\n'
    )
    reviewed = read_reviewed(tmp_path / "r.toml")
    assert reviewed.equivalence(mutant()) == "x is not used"
    assert reviewed.equivalence(mutant("x = [3]", "A.g")) == "x is not used"
    assert reviewed.equivalence(mutant(function="B.f")) == ""
    other = Mutant("m.py", "A.f", "number", "y = 1", "y = 2", 7, (7, 7), 0, 1, "2")
    assert reviewed.equivalence(other) == ""


def test_an_entry_that_names_nothing_is_found(reviewed):
    assert reviewed.unused([mutant()]) == ()
    assert [entry.function for entry in reviewed.unused([mutant("x = 3")])] == ["A.f"]


@pytest.mark.parametrize(
    "text", ["[[equivalent]]\nmodule = 'm.py'\n", "a = ", "[[other]]\na = 1\n"]
)
def test_a_malformed_file_is_reported_by_its_name(tmp_path, text):
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(ConformanceError, match=r"r\.toml: not"):
        read_reviewed(tmp_path / "r.toml")


def test_the_projects_own_entries_name_files_that_are_changed():
    own = read_reviewed()
    files = {name for library, globs in BATCHING.items() for name in files_of(library, globs)}
    assert {entry.module for entry in own.equivalent} <= files


# Defaults that are given in some run, and mean the same as what the mutant gives.
MEANT = ("tested for truth", "in either case", "replaced whole", "read once more")


@pytest.mark.nightly
def test_entries_of_defaults_that_no_run_needs_are_needless():
    """``audit mutants`` tries by itself whether any run needs what a lookup gives."""
    files = files_of("mlx_vlm", ())
    text = {module: path.read_text() for module, path in files.items()}

    def is_default(one):
        right = text[one.module]
        wrong = right[: one.start] + one.text + right[one.end :]
        return without_default(right, wrong) is not None

    # For speed, of those that may be lookups.
    entries = [
        e for e in read_reviewed().equivalent if e.module in files and ASKED.search(e.before)
    ]
    mutants = [one for one in mutants_in(files) if ASKED.search(one.before)]
    needless = [
        entry.before
        for entry in entries
        if not any(words in entry.reason for words in MEANT)
        and (named := [one for one in mutants if entry.names(one)])
        and all(map(is_default, named))
    ]
    assert needless == []
