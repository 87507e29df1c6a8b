"""Files of the corpus: named by their content, written whole, read with care."""

import msgspec
import pytest
from miniatures.model import VOCAB

from conformance.core.engine import Capability
from conformance.core.errors import ScheduleError
from conformance.core.family import Facts, Family
from conformance.core.schedule import Arrival, Removal, Request, Schedule, Trigger
from conformance.core.verdict import Verdict
from conformance.scenarios import Brief
from conformance.tools.explore import corpus
from conformance.tools.explore.corpus import Entry, entry_of, read_corpus, write_entry
from conformance.tools.explore.results import Discovery, Maker

SCHEDULE = Schedule("drawn", (Arrival((Request("a", (1, 2), 3),)),))


@pytest.fixture
def entry():
    found = Discovery(
        "right", "calm", "float32", Verdict.DRIFT, "forced", "off", 7, Maker.SCHEDULES,
        True, 1.0, SCHEDULE, SCHEDULE,
    )  # fmt: skip
    return entry_of(found, "toy", {"toy": "1.0"})


def test_what_is_written_is_read(entry, tmp_path):
    path = write_entry(entry, tmp_path / "new")
    assert path.stem == entry.name
    assert read_corpus(path.parent) == (entry,)
    assert [item.name for item in path.parent.iterdir()] == [path.name]


def test_the_name_is_that_of_what_is_played(entry):
    def named(**other):
        return msgspec.structs.replace(entry, **other).name

    renamed = msgspec.structs.replace(entry.schedule, name="else")
    assert named(what="other words", versions={}, schedule=renamed) == entry.name
    assert named(family="other") != entry.name
    assert named(schedule=Schedule("kept", ())) != entry.name


def test_what_is_there_stays(entry, tmp_path):
    path = write_entry(entry, tmp_path)
    write_entry(msgspec.structs.replace(entry, what="seen again"), tmp_path)
    assert read_corpus(tmp_path) == (entry,)
    assert path.exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "missing required field"),
        ("no", "not an entry of the corpus"),
        (None, "the name for its content is"),
    ],
)
def test_a_wrong_file_is_reported_in_one_sentence(entry, tmp_path, text, words):
    wrong = tmp_path / "0123456789ab.json"
    wrong.write_bytes(text.encode() if text else msgspec.json.encode(entry))
    with pytest.raises(ScheduleError, match=words) as raised:
        read_corpus(tmp_path)
    assert str(wrong) in str(raised.value)


def test_a_schedule_that_cannot_be_played_is_reported(entry, tmp_path):
    bad = msgspec.structs.replace(entry, schedule=Schedule("s", (Arrival((Request("a", (), 3),)),)))
    (tmp_path / f"{bad.name}.json").write_bytes(msgspec.json.encode(bad))
    with pytest.raises(ScheduleError, match="prompt is empty"):
        read_corpus(tmp_path)


def test_the_projects_own_corpus_can_be_read():
    assert corpus.OWN.is_dir()
    assert all(isinstance(entry, Entry) for entry in read_corpus())


REQUEST = Request("a", (1, 2), 3)
PLAIN = Schedule("kept", (Arrival((REQUEST,)),))
REMOVED = Schedule("kept", (Arrival((REQUEST,)),), (Removal(("a",), Trigger(count=1)),))


def entry_on(family, schedule):
    return Entry("toy", "right", family, "float32", 0, {}, Verdict.DRIFT, "off", schedule)


@pytest.fixture(autouse=True)
def kept(monkeypatch):
    entries = (entry_on("calm", PLAIN), entry_on("calm", REMOVED), entry_on("other", PLAIN))
    monkeypatch.setattr(corpus, "_corpus", lambda: entries)
    return entries


def brief(family, *capabilities, library="toy"):
    return Brief(
        (0, VOCAB), None, False, 0, frozenset(capabilities), (), lambda *_: None,
        family=family, library=library,
    )  # fmt: skip


def test_a_family_plays_what_was_found_on_it_under_the_names_of_its_files(kept):
    made = corpus.CORPUS.make(brief("calm", Capability.CANCEL))
    assert [schedule.name for schedule in made] == [kept[0].name, kept[1].name]
    assert made[1].removals == REMOVED.removals


def test_what_an_engine_cannot_do_is_left_out(kept):
    assert [s.name for s in corpus.CORPUS.make(brief("calm"))] == [kept[0].name]


def test_other_libraries_have_families_of_the_same_name():
    assert corpus.CORPUS.make(brief("calm", library="else")) == []


def test_it_applies_where_there_is_something():
    def applies(name):
        return corpus.CORPUS.applies(Family(name, Facts(library="toy"), {"vocab_size": VOCAB}))

    assert applies("calm") == ""
    assert "no schedule" in applies("still")
