"""An adapter is that of its seed, and gives other answers than the model as it is."""

import mlx.core as mx

from conformance.core.engine_options import EngineOptions
from conformance.core.origin import Origin
from conformance.core.schedule import Asked, Request
from conformance.plugins.mlx_lm.library import MlxLm
from conformance.plugins.servers.adapters import adapted_stream, write_adapter
from conformance.run.registry import build_registry

DRAWN = "adapters.safetensors"


def test_an_adapter_is_drawn_from_its_seed_and_changes_the_answer(tmp_path):
    family = build_registry(engines=["mlx_lm"]).families["mlx_lm", "llama"]
    library = MlxLm()

    def write(folder):
        library.write(family, folder, dtype="float32", seed=0)

    write(tmp_path)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_adapter(tmp_path, tmp_path / name, seed)
    one, same, other = (mx.load(str(tmp_path / name / DRAWN)) for name in "abc")
    assert all(mx.array_equal(one[key], same[key]) for key in one)
    assert not any(mx.array_equal(one[key], other[key]) for key in one)

    model = library.load(family, dtype="float32", seed=0)
    plain = Request("plain", (5, 9, 33, 7), 8)
    alone = library.single_stream(model, plain, options=EngineOptions(), steps=8).stream.tokens
    origin = Origin(model, family, "float32", 0, write)
    asked = [Request("a", plain.prompt, 8, asked=Asked(adapter=number)) for number in (1, 1, 2)]
    adapted = [adapted_stream(origin, request, EngineOptions()) for request in asked]
    assert adapted[0] == adapted[1]
    assert len({alone, adapted[0], adapted[2]}) == 3
