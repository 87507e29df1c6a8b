"""The command and the checkpoint of a server in two processes."""

import json

import numpy as np
from safetensors.numpy import save_file

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions
from conformance.core.family import Facts, Family
from conformance.core.origin import Origin
from conformance.plugins.servers.mlx_lm_server import PipelineServer, TensorParallelServer

ORIGIN = Origin(
    None, Family("llama", Facts(), {"vocab_size": 8}), "float32", 0, lambda folder: None
)


def unconnected(kind):
    engine = kind.__new__(kind)
    engine._given, engine._options = ORIGIN, EngineOptions()
    return engine


def test_the_launcher_starts_two_processes_on_loopback():
    command = unconnected(TensorParallelServer).launcher()
    assert command[0].endswith("mlx.launch")
    assert command[1:5] == ("--backend", "ring", "-n", "2")
    assert command[-1] == "--"


def test_only_a_pipeline_is_asked_for():
    assert "--pipeline" in unconnected(PipelineServer).flags()
    assert "--pipeline" not in unconnected(TensorParallelServer).flags()


def test_the_checkpoint_has_an_index_and_a_tokenizer(tmp_path):
    save_file({"a": np.zeros(1)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    unconnected(TensorParallelServer).dress(tmp_path)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == {"a": "model.safetensors"}
    assert (tmp_path / "tokenizer.json").exists()


def test_adapters_which_the_server_refuses_there_are_not_asked_for():
    assert Capability.ADAPTERS not in TensorParallelServer.capabilities
