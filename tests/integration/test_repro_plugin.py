"""``conformance repro`` of a case whose engine is another package's."""

import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "example_plugin" / "conformance_example"
CASE = "their_engine/llama/ragged/float32/0"
CALLS = """
    @classmethod
    def repro_calls(cls):
        return ReproCalls(
            imports=("from their_package import Scheduler",),
            construct="Scheduler(model)",
            insert="engine.submit(names, prompts, counts)",
            step="engine.step()",
            logprobs={logprobs},
        )
"""
# What is wrong: all rows attend to the padding of the shorter ones.
PACKAGE = """
import mlx.core as mx
from mlx_lm.models.cache import BatchKVCache


class Scheduler:
    def __init__(self, model):
        self.model, self.rows = model, []

    def submit(self, names, prompts, counts):
        padding = [max(map(len, prompts)) - len(prompt) for prompt in prompts]
        self.fed = mx.array([[0] * n + prompt for n, prompt in zip(padding, prompts)])
        self.cache = [BatchKVCache([0] * len(padding)) for _ in self.model.layers]
        self.rows = [[name, count] for name, count in zip(names, counts)]

    def step(self):
        if not self.rows:
            return []
        logits = self.model(self.fed, cache=self.cache)[:, -1]
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        tokens = logprobs.argmax(axis=-1).tolist()
        found = [(row[0], token, own) for row, token, own in zip(self.rows, tokens, logprobs)]
        for row in self.rows:
            row[1] -= 1
        stay = [index for index, row in enumerate(self.rows) if row[1]]
        for layer in self.cache if stay else []:
            layer.filter(mx.array(stay))
        self.rows = [self.rows[index] for index in stay]
        self.fed = mx.array([[tokens[index]] for index in stay])
        return found
"""
ADAPTER = """
import numpy as np
from conformance import (
    Capability, Engine, FinishReason, ReproCalls, StepOutput, TokenEvent, hookimpl
)

from their_package import Scheduler


class Theirs(Engine):
    name, library = "their_engine", "mlx_lm"
    capabilities = frozenset({{Capability.LOGPROBS, Capability.TOGETHER}})
    {calls}
    def __init__(self, model, options):
        self.engine, self.left, self.new = Scheduler(model), {{}}, {{}}

    def insert(self, submissions):
        asked = [s.request for s in submissions]
        self.left = {{r.request_id: r.max_tokens for r in asked}}
        self.new = {{r.request_id: len(r.prompt) for r in asked}}
        prompts = [list(r.prompt) for r in asked]
        self.engine.submit(list(self.left), prompts, list(self.left.values()))

    def step(self):
        events = []
        for name, token, logprobs in self.engine.step():
            self.left[name] -= 1
            ended = None if self.left[name] else FinishReason.LENGTH
            events.append(TokenEvent(name, token, np.array(logprobs), None, ended))
        processed, self.new = self.new, {{}}
        return StepOutput(tuple(events), processed)

    def remove(self, request_ids): ...
    def close(self): ...


@hookimpl
def conformance_engines():
    return [Theirs]
"""


@pytest.fixture
def repro(conformance, tmp_path):
    """``conformance repro`` of their engine, whose adapter has these calls."""

    def call(calls, *more):
        (tmp_path / "their_package.py").write_text(PACKAGE)
        (tmp_path / "their_adapter.py").write_text(ADAPTER.format(calls=calls))
        return partial(conformance, PYTHONPATH="")("repro", "-p", "their_adapter", CASE, *more)

    return call


@pytest.mark.parametrize("logprobs", [pytest.param(True, marks=pytest.mark.nightly), False])
def test_the_script_drives_their_package_without_ours(repro, tmp_path, logprobs):
    done = repro(CALLS.format(logprobs=logprobs), "--out", "script.py")
    assert done.code == 0, done
    script = (tmp_path / "script.py").read_text()
    assert len(script.splitlines()) <= 60
    assert "from their_package import Scheduler" in script
    assert "engine = Scheduler(model)" in script
    assert not re.search(r"^(import|from) conformance", script, re.MULTILINE)
    assert ("nats apart" in script) == logprobs
    run = partial(subprocess.run, capture_output=True, text=True, cwd=tmp_path, check=False)
    wrong = run([sys.executable, "script.py"])
    assert wrong.returncode == 1, wrong
    assert "WRONG" in wrong.stderr
    fixed = PACKAGE.replace("BatchKVCache([0] * len(padding))", "BatchKVCache(padding)")
    (tmp_path / "their_package.py").write_text(fixed)
    right = run([sys.executable, "script.py"])
    assert right.returncode == 0, right


def test_without_the_calls_one_sentence_says_what_to_implement(repro):
    done = repro("")
    assert done.code == 2
    assert done.err == (
        f"conformance: {CASE}: a script does not know the calls of the engine their_engine: "
        "implement the class method repro_calls() of Theirs, which gives a ReproCalls "
        "(docs/plugins.md)\n"
    )


def test_the_example_plugin_gets_the_same_sentence(conformance, tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "conformance_example")
    case = "one_by_one/capped_llama/ragged/float32/0"
    done = conformance("repro", "-p", "conformance_example", case, PYTHONPATH="")
    assert done.code == 2
    assert "implement the class method repro_calls() of OneByOne" in done.err
    assert len(done.err.splitlines()) == 1
