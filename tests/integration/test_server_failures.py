"""A library's real server that fails: one clear finding, and no process is left."""

import contextlib
import os

import psutil
import pytest

from conformance.core.phases import Phases
from conformance.core.verdict import Verdict
from conformance.plugins.servers.launched import servers
from conformance.plugins.servers.mlx_lm_server import MlxLmServer
from conformance.reference.subject import Subject
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.run.registry import build_registry
from conformance.scenarios.served import SERVED_SCENARIOS


def outcome(engine, name):
    """What comes of the first schedule of a scenario."""
    registry = build_registry()
    library, family = registry.libraries["mlx_lm"], registry.families["mlx_lm", "llama"]
    subject = Subject.load(library, family, dtype="float32", seed=0, phases=Phases())
    scenario = next(s for s in SERVED_SCENARIOS if s.name == name)
    first, *others = scenario.make(brief_for(subject, engine, 0))
    return judge_batched(subject, engine, scenario, [first], left_out=tuple(s.name for s in others))


def started():
    """The servers that this process has started: each works in the folder of its checkpoint."""
    for process in psutil.Process(os.getpid()).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it may end meanwhile
            if "conformance-server-" in process.cwd():
                yield process


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    servers().close()
    assert not list(started())


class WithoutTokenizer(MlxLmServer):
    name = "without_tokenizer"
    patience = 30.0

    def dress(self, folder):
        """Nothing is beside the weights."""


class KilledWhileAnswering(MlxLmServer):
    name = "killed"
    patience = 30.0
    steps = 0

    def step(self):
        self.steps += 1
        if self.steps == 10:
            found = list(started())
            assert found
            for process in found:
                process.kill()
        return super().step()


def test_a_checkpoint_without_a_tokenizer_is_one_finding():
    found = outcome(WithoutTokenizer, "served_alone")
    assert found.verdict is Verdict.CRASH
    (what,) = {f.what for f in found.findings if f.verdict is Verdict.CRASH}
    assert "tokenizer" in what.lower()
    assert "Traceback" not in what


def test_a_server_that_is_killed_while_it_answers_is_a_crash_and_is_replaced():
    found = outcome(KilledWhileAnswering, "served_together")
    assert found.verdict is Verdict.CRASH
    texts = [f.what for f in found.findings]
    assert any("the server ended with exit code" in text for text in texts), texts
    assert outcome(MlxLmServer, "served_together").verdict is Verdict.EXACT
