"""Each kind of model that a server treats differently has a family that it runs by default."""

from collections import defaultdict

import mlx.core as mx
import pytest
from mlx_lm.models.cache import (
    ChunkedKVCache,
    KVCache,
    can_trim_prompt_cache,
    make_prompt_cache,
)
from mlx_vlm.apc import model_apc_mode
from mlx_vlm.generate.diffusion import is_diffusion_model

from conformance.core.representatives import representatives
from conformance.plugins.mlx_lm.library import MlxLm
from conformance.plugins.mlx_vlm.library import MlxVlm
from conformance.run.registry import build_registry

# More tokens than the windows and chunks of families have.
_TOKENS = 48


def kind_for_mlx_lm(model):
    """How ``mlx_lm.server`` serves a model, and what it keeps of its prompts.

    Source: server.py, ``ModelProvider._load`` (merge); ``LRUPromptCache`` (whether caches can be
    cut back to a common beginning, at first and once their windows are full).
    """
    caches = make_prompt_cache(model)
    served = "in batches" if all(hasattr(cache, "merge") for cache in caches) else "one by one"
    if not can_trim_prompt_cache(caches):
        return f"{served}, kept whole"
    mx.eval(model(mx.array([[1] * _TOKENS]), cache=caches))
    return f"{served}, {'cut back' if can_trim_prompt_cache(caches) else 'cut back at first'}"


def kind_for_mlx_vlm(model):
    """How ``mlx_vlm.server`` serves a model, and what it keeps of its prompts.

    Source: server/generation.py, ``_run_impl`` (denoising models); apc.py, ``model_apc_mode``
    (blocks, or the whole caches).
    """
    if is_diffusion_model(model):
        return "denoised"
    mode = model_apc_mode(getattr(model, "language_model", model))
    return f"in batches, kept {mode or 'never'}"


LIBRARIES = {"mlx_lm": (MlxLm(), kind_for_mlx_lm), "mlx_vlm": (MlxVlm(), kind_for_mlx_vlm)}


def kinds(library, names):
    """The families of each kind."""
    made, kind_of = LIBRARIES[library]
    found = defaultdict(set)
    for name in names:
        model = made.load(build_registry().families[library, name], dtype="float32", seed=0)
        try:
            kind = kind_of(model.model if library == "mlx_vlm" else model)
        except (RuntimeError, ValueError) as error:
            # No server of this machine has Metal; olmo reads no prompt (olmo-mask-by-name).
            if name != "olmo" and "No Metal back-end" not in str(error):
                raise
        else:
            found[kind].add(name)
    return found


class Cached:
    """A model with these caches, which reads nothing into them."""

    def __init__(self, *caches):
        self.caches, self.layers = caches, caches

    def make_cache(self):
        return list(self.caches)

    def __call__(self, tokens, cache):
        return tokens


def test_a_cache_without_merge_is_served_one_by_one():
    assert kind_for_mlx_lm(Cached(KVCache(), KVCache())) == "in batches, cut back"
    assert kind_for_mlx_lm(Cached(KVCache(), ChunkedKVCache(8))) == "one by one, cut back"


def test_the_families_that_servers_run_by_default_are_of_several_kinds():
    assert set(kinds("mlx_lm", representatives().served["mlx_lm"])) == {
        "in batches, cut back", "in batches, cut back at first", "in batches, kept whole",
        "one by one, cut back",
    }  # fmt: skip
    assert len(kinds("mlx_vlm", ("qwen2_vl", "gemma3"))) == 2


@pytest.mark.nightly
@pytest.mark.parametrize("library", LIBRARIES)
def test_each_kind_of_any_family_is_run(library):
    registry = build_registry()
    all_of = kinds(library, [name for found, name in registry.families if found == library])
    run = set(representatives().served[library])
    # transformers cannot read the configuration of deepseek_v41, alone of its kind: its yarn asks
    # for max_position_embeddings before a model type that it does not know has any.
    left_out = {kind: names for kind, names in all_of.items() if not names & run}
    known = {"one by one, kept whole": {"deepseek_v41"}} if library == "mlx_lm" else {}
    assert left_out == known
