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


@pytest.mark.parametrize("verdict", [Verdict.UNSTABLE, Verdict.HANG])
def test_a_known_defect_that_hangs_or_differs_from_itself_is_kept(session, verdict):
    known = make_result(verdict=verdict, expected=True, known="leak")
    assert Recorder().modules(session, A, known)
    beyond = make_result(verdict=verdict, expected=False, known="leak")
    assert Recorder().modules(session, A, beyond) is None


@pytest.fixture
def unloadable(session, monkeypatch, tmp_path):
    """A session whose model could not be loaded by a library in a folder of the test."""
    folder = tmp_path / "mlx_lm"
    folder.mkdir()
    (folder / "llama.py").touch()
    os.utime(folder / "llama.py", (1, 1))
    monkeypatch.setattr(Engine, "library", "mlx_lm")
    monkeypatch.setattr(dependency_recorder, "package_folder", lambda name: folder)
    session.loaded, session.failed = (lambda case: None), (lambda case: True)
    return folder


def test_a_model_that_could_not_be_loaded_hangs_on_all_of_its_library(session, unloadable):
    found = Recorder().modules(session, A, RIGHT)
    assert found == {"mlx_lm.*": dependency_recorder.package_digest("mlx_lm")}
    os.utime(unloadable / "llama.py", (time.time() + 60, time.time() + 60))
    assert Recorder().modules(session, A, RIGHT) == {"mlx_lm.*": EDITED}


def test_a_model_that_was_not_tried_or_is_of_another_library_is_not_kept(session, unloadable):
    session.failed = lambda case: False
    assert Recorder().modules(session, A, RIGHT) is None
    session.failed = lambda case: True
    session.registry.engines["toy"] = type("Other", (Engine,), {"library": "toy"})
    assert Recorder().modules(session, A, RIGHT) is None


def test_a_case_that_ended_its_process_hangs_on_all_of_its_library(session, unloadable):
    session.failed = lambda case: False
    crashed = make_result(verdict=Verdict.CRASH)
    assert list(Recorder().modules(session, A, crashed)) == ["mlx_lm.*"]


def test_a_file_that_is_gone_meanwhile_is_never_known(session, tmp_path):
    session.modules.add(str(tmp_path / "gone.py"))
    assert Recorder().modules(session, A, RIGHT)[str(tmp_path / "gone.py")] == EDITED
