"""What a process that plays cases reports of the modules that they hung on."""

import os
import time
from types import SimpleNamespace

import pytest
from results_by_hand import make_result

from conformance.core.verdict import CaseId, Verdict
from conformance.run.reuse import dependency_recorder
from conformance.run.reuse.dependency_recorder import EDITED, Recorder

A = CaseId.parse("toy/llama/ragged/float32/0")
RIGHT = make_result()


class Engine:
    library = "toy"


@pytest.fixture
def session(monkeypatch, tmp_path):
    """A session with one loaded model, whose modules are files of the test."""
    path = tmp_path / "old.py"
    path.write_text("x = 1")
    os.utime(path, (1, 1))
    found = SimpleNamespace(modules={str(path)}, path=path)
    monkeypatch.setattr(
        dependency_recorder, "modules_of", lambda model, packages: frozenset(found.modules)
    )
    found.registry = SimpleNamespace(engines={"toy": Engine})
    found.loaded = lambda case: SimpleNamespace(model=None)
    return found


def test_modules_are_reported_once_with_the_digest_of_their_file(session):
    recorder = Recorder()
    (digest,) = recorder.modules(session, A, RIGHT).values()
    assert len(digest) == 32
    assert recorder.modules(session, A, RIGHT) == {}


def test_what_a_later_case_loads_is_reported_then(session, monkeypatch, tmp_path):
    recorder = Recorder()
    recorder.modules(session, A, RIGHT)
    (tmp_path / "late.py").touch()
    session.modules.add(str(tmp_path / "late.py"))
    monkeypatch.setitem(dependency_recorder.sys.modules, "late", SimpleNamespace())
    assert list(recorder.modules(session, A, RIGHT)) == [str(tmp_path / "late.py")]


def test_a_file_that_is_newer_than_the_process_is_never_known(session):
    recorder = Recorder()
    os.utime(session.path, (time.time() + 60, time.time() + 60))
    assert list(recorder.modules(session, A, RIGHT).values()) == [EDITED]


@pytest.mark.parametrize("verdict", [Verdict.UNSTABLE, Verdict.HANG])
def test_a_result_that_may_be_another_next_time_is_not_kept(session, verdict):
    assert Recorder().modules(session, A, make_result(verdict=verdict)) is None


def test_a_model_that_could_not_be_loaded_is_not_kept(session):
    session.loaded = lambda case: None
    assert Recorder().modules(session, A, RIGHT) is None


def test_a_file_that_is_gone_meanwhile_is_never_known(session, tmp_path):
    session.modules.add(str(tmp_path / "gone.py"))
    assert Recorder().modules(session, A, RIGHT)[str(tmp_path / "gone.py")] == EDITED
