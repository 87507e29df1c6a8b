"""The scenario of the corpus plays a family's own schedules, as far as its engine can."""

import pytest
from miniatures.model import VOCAB

from conformance.core.engine import Capability
from conformance.core.family import Facts, Family
from conformance.core.schedule import Arrival, Removal, Request, Schedule, Trigger
from conformance.core.verdict import Verdict
from conformance.scenarios import Brief
from conformance.tools.explore import replay
from conformance.tools.explore.corpus import Entry

REQUEST = Request("a", (1, 2), 3)
PLAIN = Schedule("kept", (Arrival((REQUEST,)),))
REMOVED = Schedule("kept", (Arrival((REQUEST,)),), (Removal(("a",), Trigger(count=1)),))


def entry(family, schedule):
    return Entry("toy", "right", family, "float32", 0, {}, Verdict.DRIFT, "off", schedule)


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    entries = (entry("calm", PLAIN), entry("calm", REMOVED), entry("other", PLAIN))
    monkeypatch.setattr(replay, "_corpus", lambda: entries)
    return entries


def brief(family, *capabilities, library="toy"):
    return Brief(
        (0, VOCAB), None, False, 0, frozenset(capabilities), (), lambda *_: None,
        family=family, library=library,
    )  # fmt: skip


def test_a_family_plays_what_was_found_on_it_under_the_names_of_its_files(kept):
    made = replay.CORPUS.make(brief("calm", Capability.CANCEL))
    assert [schedule.name for schedule in made] == [kept[0].name, kept[1].name]
    assert made[1].removals == REMOVED.removals


def test_what_an_engine_cannot_do_is_left_out(kept):
    assert [s.name for s in replay.CORPUS.make(brief("calm"))] == [kept[0].name]


def test_other_libraries_have_families_of_the_same_name():
    assert replay.CORPUS.make(brief("calm", library="else")) == []


def test_it_applies_where_there_is_something():
    def applies(name):
        return replay.CORPUS.applies(Family(name, Facts(library="toy"), {"vocab_size": VOCAB}))

    assert applies("calm") == ""
    assert "no schedule" in applies("still")
