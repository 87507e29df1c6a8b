"""Stored oracles of families: used by the next run, of the same model, within a bound."""

import os
import threading

import numpy as np
import pytest
from miniatures.library import RestlessLibrary, ToyLibrary, family

from conformance.core.engine_options import EngineOptions
from conformance.core.phases import Phases
from conformance.core.schedule import Request
from conformance.core.trace import Stream
from conformance.reference.family_store import FamilyStore
from conformance.reference.subject import Subject

REQUESTS = [Request("a", (1, 2, 3), 4), Request("b", (4, 5), 4), Request("c", (6, 7, 8), 9)]


@pytest.fixture
def store(tmp_path):
    """A fresh store as each run makes it; keys are the name of the library's class and more."""

    def make(more="", **options):
        key = lambda library, family, dtype, seed: f"{type(library).__name__}{dtype}{seed}{more}"  # noqa: E731
        return FamilyStore(tmp_path / "families", key, **options)

    return make


def run(store, library=None, *, seed=0):
    """Streams and noise of all requests in a run of its own; the library, and what came out."""
    library = library or ToyLibrary()
    subject = Subject.load(
        library, family(), dtype="float32", seed=seed, phases=Phases(), store=store
    )
    found = []
    for request in REQUESTS:
        stream = subject.oracle.solo(request, EngineOptions(), None)
        noise = subject.oracle.envelope(request, EngineOptions(), None, runs=2)
        found += [stream.tokens, stream.logprobs.tobytes(), noise.top.tobytes(), noise.floor]
    store.save(subject.file)
    return library, found


def test_the_second_run_makes_one_stream_and_no_noise_and_has_the_same_bits(store):
    first, made = run(store())
    second, found = run(store())
    assert found == made
    assert len(first.streams) == len(REQUESTS)
    assert second.streams == first.streams[:1]
    assert first.passed
    assert second.passed == []


def test_the_longer_stream_of_an_earlier_run_does_not_widen_the_noise_of_this_one(store):
    """What a case compares with must not hang on which cases were run before."""

    def noise(store, *lengths):
        subject = Subject.load(
            ToyLibrary(), family(), dtype="float32", seed=0, phases=Phases(), store=store
        )
        for length in lengths:
            request = Request("a", (1, 2, 3), length)
            subject.oracle.solo(request, EngineOptions(), None)
            found = subject.oracle.envelope(request, EngineOptions(), None, runs=2)
        store.save(subject.file)
        return found.full

    alone = noise(store("other"), 4)
    noise(store(), 4, 12)
    assert np.array_equal(noise(store(), 4), alone)


@pytest.mark.parametrize("other", ["key", "seed"])
def test_another_key_or_seed_uses_nothing(store, other):
    run(store())
    library, _ = run(store("changed" if other == "key" else ""), seed=int(other == "seed"))
    assert len(library.streams) == len(REQUESTS)


def test_a_model_that_gives_something_else_under_the_same_key_uses_nothing(store):
    run(store())
    library, _ = run(opened := store(), type("ToyLibrary", (RestlessLibrary,), {})())
    assert len(library.streams) == len(REQUESTS)
    (report,) = opened.reports
    assert "the stored oracle is not this model's" in report


def test_a_folder_that_cannot_be_written_is_reported_once(store, tmp_path):
    (tmp_path / "families").write_text("in the way")
    opened = store()
    _, found = run(opened)
    _, again = run(opened)
    assert found == again
    assert opened.reports == [
        f"{tmp_path / 'families'}: nothing can be cached there (File exists); "
        "each run makes it anew"
    ]


def test_without_a_key_nothing_is_stored(tmp_path):
    run(FamilyStore(tmp_path / "families", lambda *_: None))
    assert not (tmp_path / "families").exists()


def sized(store, name, count, *, at):
    """Store ``count`` logprobs for a family, last used ``at`` seconds after the epoch."""
    file = store.open(ToyLibrary(), type(family())(name, family().facts, {}), "float32", 0)
    file.cache.streams[name] = Stream((1,), np.zeros((1, count), np.float32))
    store.save(file)
    os.utime(file.path, (at, at))
    return file.path


def test_the_longest_unused_are_removed_over_the_bound(store, tmp_path):
    old = sized(store(), "old", 1000, at=1)
    used = sized(store(), "used", 1000, at=2)
    recent = sized(store(), "recent", 1000, at=3)
    (tmp_path / "families" / "note.txt").write_text("not ours")
    store().open(ToyLibrary(), type(family())("old", family().facts, {}), "float32", 0)
    new = sized(store(most_bytes=15_000), "new", 1000, at=4)
    assert {path.name for path in (tmp_path / "families").iterdir()} == {
        new.name,
        recent.name,
        old.name,
        "note.txt",
    }, "`old` was used last"
    assert not used.exists()


def test_the_file_that_was_just_written_stays_even_if_it_is_over_the_bound(store):
    kept = sized(store(most_bytes=10), "large", 1000, at=1)
    assert kept.exists()


def test_runs_at_the_same_time_leave_a_whole_file(store):
    reports = []

    def one():
        opened = store()
        run(opened)
        reports.extend(opened.reports)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    library, _ = run(last := store())
    assert reports + last.reports == []
    assert len(library.streams) == 1
