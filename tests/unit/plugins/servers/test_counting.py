"""A server's steps: what its process notes, and what is read of it."""

import types

import mlx.core as mx
import pytest
from mlx import nn

from conformance.core.forward_calls import ForwardCall
from conformance.plugins.servers import counting, starting


class Model(nn.Module):
    def __call__(self, tokens, cache=None):
        return tokens


class Generator:
    """Prefills a prompt of three tokens, then makes one token a step, then rests."""

    def __init__(self, model):
        self.model, self.lengths = model, [3, 1]

    def next(self):
        for length in self.lengths[:1]:
            self.model(mx.zeros((2, length), mx.int32))
        del self.lengths[:1]
        return "responses"


@pytest.fixture
def hits(tmp_path, monkeypatch):
    module = types.ModuleType("batching")
    module.BatchGenerator = Generator
    monkeypatch.setitem(__import__("sys").modules, "batching", module)
    return starting.NotedHits(tmp_path / "hits-0")


def played(hits):
    with counting._noted("batching", hits):
        for generator in [Generator(model) for model in [Model()] * 2]:
            assert [generator.next() for _ in range(4)] == ["responses"] * 4


def test_each_step_that_computes_is_noted_once_and_read_once(hits, tmp_path):
    steps = counting.Steps(tmp_path)
    assert steps.new() == ()
    played(hits)
    found = steps.new(left=True)
    calls = [step.forwards for step in found]
    assert calls == [(ForwardCall(2, 3),), (ForwardCall(2, 1),)] * 2
    assert all(step.left and step.nbytes >= 0 for step in found)
    assert steps.new() == []
    assert counting.Steps(tmp_path).new() == []  # those of before are another schedule's


def test_a_line_that_is_being_written_is_read_when_it_is_whole(hits, tmp_path):
    steps, file = counting.Steps(tmp_path), tmp_path / "steps.jsonl"
    file.write_text('{"nbytes":1,"calls":[[1,2]]}\n{"nbytes":2,')
    assert [step.nbytes for step in steps.new()] == [1]
    with file.open("a") as more:
        more.write('"calls":[[1,1]]}\n')
    assert [step.nbytes for step in steps.new()] == [2]


def test_of_a_group_the_first_process_notes(hits, tmp_path, monkeypatch):
    monkeypatch.setenv("MLX_RANK", "1")
    played(hits)
    assert not counting.Steps(tmp_path).new()
