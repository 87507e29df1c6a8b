"""What a process that plays cases reports of the modules and files that they hung on."""

from types import SimpleNamespace

import pytest
from results_by_hand import make_result

from conformance.core.engine import Capability
from conformance.core.verdict import CaseId, Verdict
from conformance.reference.surroundings import Environment
from conformance.run.reuse import dependency_recorder
from conformance.run.reuse.dependency_recorder import Recorder, reusable

A = CaseId.parse("toy/llama/ragged/float32/0")
RIGHT = make_result()
SEEN = (1, 2, 3, 4)
OURS = {"__module__": "conformance.plugins.toy"}


class Engine:
    library = "toy"
    elsewhere = False
    own_processes = False
    capabilities = frozenset()


@pytest.fixture
def session(monkeypatch):
    """A session with one loaded model; what it hangs on is the test's."""
    found = SimpleNamespace(modules={"old"}, opened={}, registry=None)
    monkeypatch.setattr(
        dependency_recorder, "modules_of", lambda *_: found.modules and frozenset(found.modules)
    )
    monkeypatch.setattr(dependency_recorder, "opened_files", lambda *_: iter(found.opened.items()))
    monkeypatch.setattr(dependency_recorder, "number_opened", lambda: len(found.opened))
    found.local, found.model_file = [], None
    monkeypatch.setattr(dependency_recorder, "local_modules", lambda _: iter(found.local))
    monkeypatch.setattr(Engine, "__module__", "conformance.plugins.toy")
    family = lambda _: SimpleNamespace(facts=SimpleNamespace(model_file=found.model_file))  # noqa: E731
    found.registry = SimpleNamespace(engines={"toy": Engine}, family_of=family)
    found.loaded = lambda case: SimpleNamespace(model=None)
    return found


@pytest.fixture
def recorder():
    return Recorder(Environment.first())


def test_modules_are_reported_once(session, recorder):
    assert recorder.modules(session, A, RIGHT) == {"old": "module"}
    assert recorder.modules(session, A, RIGHT) == {}


def test_what_a_later_case_loads_is_reported_then(session, recorder, monkeypatch):
    recorder.modules(session, A, RIGHT)
    session.modules.add("late")
    monkeypatch.setitem(dependency_recorder.sys.modules, "late", SimpleNamespace())
    assert recorder.modules(session, A, RIGHT) == {"late": "module"}


def test_files_are_reported_as_they_were_when_they_were_opened(session, recorder):
    recorder.modules(session, A, RIGHT)
    session.opened = {"/data": SEEN, "/not/there": None}
    assert recorder.modules(session, A, RIGHT) == {"/data": SEEN, "/not/there": "absent"}


@pytest.mark.parametrize("verdict", [Verdict.UNSTABLE, Verdict.HANG])
def test_a_result_that_may_be_another_next_time_is_not_kept(session, recorder, verdict):
    assert recorder.modules(session, A, make_result(verdict=verdict)) is None


@pytest.mark.parametrize("verdict", [Verdict.UNSTABLE, Verdict.HANG])
def test_a_known_defect_that_hangs_or_differs_from_itself_is_kept(session, recorder, verdict):
    beyond = make_result(verdict=verdict, expected=False, known="leak")
    assert recorder.modules(session, A, beyond) is None
    known = make_result(verdict=verdict, expected=True, known="leak")
    assert recorder.modules(session, A, known)


def test_what_was_loaded_from_something_else_than_its_file_is_not_kept(session, recorder):
    session.modules = None
    assert recorder.modules(session, A, RIGHT) is None


def test_an_engine_that_is_elsewhere_or_not_ours_is_played_each_time(session, recorder):
    session.registry.engines["toy"] = type("Far", (Engine,), {**OURS, "elsewhere": True})
    assert recorder.modules(session, A, RIGHT) is None
    assert reusable(Engine)
    assert not reusable(session.registry.engines["toy"])
    assert not reusable(type("Mine", (Engine,), {"__module__": "mine"}))


def test_what_ran_beside_code_of_the_users_is_not_kept(session, recorder):
    session.local = ["patching.py"]
    assert recorder.modules(session, A, RIGHT) is None
    session.local, session.model_file = [], "own_model.py"
    assert recorder.modules(session, A, RIGHT) is None
    session.model_file = None
    assert recorder.modules(session, A, RIGHT)


@pytest.mark.parametrize(
    "elsewhere", [{"own_processes": True}, {"capabilities": frozenset({Capability.SERVED})}]
)
def test_what_runs_in_other_processes_hangs_on_all_of_both_libraries(session, recorder, elsewhere):
    session.registry.engines["toy"] = type("Far", (Engine,), {**OURS, **elsewhere})
    assert recorder.modules(session, A, RIGHT).keys() == {"old", "mlx_lm.*", "mlx_vlm.*"}


@pytest.fixture
def unloadable(session, monkeypatch):
    """A session whose model could not be loaded."""
    monkeypatch.setattr(Engine, "library", "mlx_lm")
    session.loaded, session.failed = (lambda case: None), (lambda case: True)


def test_a_model_that_could_not_be_loaded_hangs_on_all_of_its_library(
    session, recorder, unloadable
):
    assert recorder.modules(session, A, RIGHT) == {"mlx_lm.*": "module"}


def test_a_model_that_was_not_tried_or_is_of_another_library_is_not_kept(
    session, recorder, unloadable
):
    session.failed = lambda case: False
    assert recorder.modules(session, A, RIGHT) is None
    session.failed = lambda case: True
    session.registry.engines["toy"] = type("Other", (Engine,), {**OURS, "library": "toy"})
    assert recorder.modules(session, A, RIGHT) is None


def test_a_case_that_ended_its_process_hangs_on_all_of_its_library(session, recorder, unloadable):
    session.failed = lambda case: False
    crashed = make_result(verdict=Verdict.CRASH)
    assert list(recorder.modules(session, A, crashed)) == ["mlx_lm.*"]
