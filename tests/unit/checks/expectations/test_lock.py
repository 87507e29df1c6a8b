"""The lock file of a release: how each entry shows there, by a schedule of its own."""

import msgspec
import pytest

from conformance.checks.expectations import load_expectations
from conformance.checks.expectations.loading import OWN
from conformance.checks.expectations.lock import (
    Locked,
    lock_file,
    newest_lock,
    read_lock,
    write_lock,
)
from conformance.core.errors import ExpectationError
from conformance.core.schedule import Arrival, Request, Schedule
from conformance.core.verdict import Verdict

SMALL = Schedule("two", (Arrival((Request("a", (1, 2), 1), Request("b", (3,), 1))),))


def line(entry="lost-state", family="mamba", **changes):
    case = f"mlx_lm/{family}/ragged/float32/0"
    return Locked(
        **({"entry": entry, "case": case, "verdict": Verdict.DRIFT} | changes), schedule=SMALL
    )


def test_lines_are_kept_in_order_and_once_for_each_family_of_an_entry(tmp_path):
    path = lock_file(tmp_path, "mlx-lm", "0.33.0")
    again = line(verdict=Verdict.DIVERGED)
    write_lock(path, [line("z"), line(), line(family="jamba"), again])
    assert read_lock(path) == (line(family="jamba"), again, line("z"))
    assert len(path.read_text().splitlines()) == 3
    assert path.name == "mlx-lm-0.33.0.jsonl"


def test_a_release_without_a_lock_has_no_lines(tmp_path):
    assert read_lock(lock_file(tmp_path, "mlx-lm", "0.33.0")) == ()
    assert newest_lock(tmp_path, "mlx-lm", "0.33.0") is None


@pytest.mark.parametrize(
    ("version", "used"),
    [("0.9.0", "0.9.0"), ("0.10.1", "0.10.0"), ("0.9.5", "0.9.0"), ("0.1.0", "0.9.0")],
)
def test_a_release_without_a_lock_uses_the_one_before_it(tmp_path, version, used):
    for own in ("0.9.0", "0.10.0"):
        write_lock(lock_file(tmp_path, "mlx-lm", own), [line()])
        write_lock(lock_file(tmp_path, "mlx-vlm", version), [line()])
    assert newest_lock(tmp_path, "mlx-lm", version) == lock_file(tmp_path, "mlx-lm", used)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "line 1: "),
        ('{"entry": "a"}', "line 1: "),
        ("{good}\n{good}", "line 2: there are two lines about lost-state in mlx_lm in mamba"),
        ("{odd}", "line 1: 'mamba' is not a case id"),
        ("{twice}", "line 1: schedule 'two', request 'a': "),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path, text, says):
    good = line()
    twice = msgspec.structs.replace(good, schedule=Schedule("two", SMALL.arrivals * 2))
    odd = msgspec.structs.replace(good, case="mamba")
    for name, one in {"good": good, "twice": twice, "odd": odd}.items():
        text = text.replace(f"{{{name}}}", msgspec.json.encode(one).decode())
    path = tmp_path / "lock.jsonl"
    path.write_text(text)
    with pytest.raises(ExpectationError, match=f"^{path}: {says}"):
        read_lock(path)


def test_expectations_have_the_lock_of_the_installed_release(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "conformance.checks.expectations.loading.versions_of", lambda package: {package: "1.0"}
    )
    (tmp_path / "mlx_lm.toml").write_text(
        'package = "mlx-lm"\n[[defect]]\nid = "lost-state"\nfamilies = ["mamba"]\n'
        'where = "mlx_lm/a.py:1"\nwhy = "it is"\nversions = "==1.0"\n'
        '[defect.verdicts]\nragged = "drift"\n'
    )
    assert load_expectations(tmp_path).lock == ()
    write_lock(lock_file(tmp_path, "mlx-lm", "0.9"), [line("other")])
    write_lock(lock_file(tmp_path, "mlx-lm", "1.0"), [line()])
    assert load_expectations(tmp_path).lock == (line(),)


def test_each_line_of_the_project_is_about_an_entry_that_has_that_case():
    known = load_expectations()
    entries = {entry.id: entry for entry in known.defects}
    lines = [one for path in sorted((OWN / "lock").glob("*.jsonl")) for one in read_lock(path)]
    assert lines
    for one in lines:
        engine, family, scenario, _, _ = one.case.split("/")
        entry = entries[one.entry]
        assert entry.is_about(engine, family), one.place
        assert one.beside or one.verdict in entry.wanted(scenario), one.place
        assert set(one.beside) <= entries.keys(), one.place
        assert entry.claims(scenario, one.schedule.name), one.place
