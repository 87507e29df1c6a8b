"""Models of other families, and adapters of mlx-vlm, give the library's own other answers."""

import json

from conformance.core.engine_options import EngineOptions
from conformance.core.origin import Origin
from conformance.core.schedule import Asked, Request
from conformance.plugins.mlx_lm.library import MlxLm
from conformance.plugins.mlx_lm.plugin import FAMILIES
from conformance.plugins.mlx_vlm.library import MlxVlm
from conformance.plugins.servers.other_models import another, nbytes_of
from conformance.plugins.servers.vlm_adapters import adapted_stream, write_adapter
from conformance.run.registry import build_registry

PROMPT = (5, 9, 33, 7)


def origin_of(library, name):
    family = build_registry(engines=[library.name]).families[library.name, name]

    def write(folder):
        library.write(family, folder, dtype="float32", seed=0)

    return Origin(library.load(family, dtype="float32", seed=0), family, "float32", 0, write)


def test_another_family_is_written_and_answers(tmp_path):
    origin = origin_of(MlxLm(), "llama")
    other = another(MlxLm(), FAMILIES, "mamba2", origin)
    other.write(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "mamba2"
    request = Request("a", PROMPT, 8)
    own = MlxLm().single_stream(origin.model, request, options=EngineOptions(), steps=8)
    assert other.alone(request, EngineOptions()) != own.stream.tokens


def test_bytes_of_caches_are_those_of_their_storage():
    """Keys and values of 2 heads of 16 numbers of 4 bytes, in 4 layers."""
    origin = origin_of(MlxLm(), "llama")
    assert nbytes_of(origin, 256) == 256 * 2 * 2 * 16 * 4 * 4
    assert origin.meter == []


def test_an_adapter_of_mlx_vlm_is_drawn_from_its_seed_and_changes_the_answer(tmp_path):
    library = MlxVlm()
    origin = origin_of(library, "llama")
    origin.write(tmp_path)
    write_adapter(tmp_path, tmp_path / "adapter", 1)
    keys = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert keys["lora_parameters"]["keys"]
    plain = Request("plain", PROMPT, 8)
    alone = library.single_stream(origin.model, plain, options=EngineOptions(), steps=8)
    asked = [Request("a", PROMPT, 8, asked=Asked(adapter=number)) for number in (1, 1, 2)]
    adapted = [adapted_stream(origin, request, EngineOptions()) for request in asked]
    assert adapted[0] == adapted[1]
    assert len({alone.stream.tokens, adapted[0], adapted[2]}) == 3
