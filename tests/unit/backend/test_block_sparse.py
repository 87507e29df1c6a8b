"""Blocks are cut over the positions of each row, and what the mask hides is hidden."""

import importlib

import mlx.core as mx
import pytest

from conformance.backend.block_sparse import blocks_of_positions
from conformance.core.faults.declaration import Hits

CONFIG = {
    **{"model_type": "phi3small", "hidden_size": 32, "dense_attention_every_n_layers": 1},
    **{"ff_intermediate_size": 32, "gegelu_limit": 20.0, "num_hidden_layers": 1},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "layer_norm_epsilon": 1e-5},
    **{"vocab_size": 64, "mup_attn_multiplier": 1.0, "mup_use_scaling": True},
    **{"mup_embedding_multiplier": 10.0, "mup_width_multiplier": 8.0},
    **{"rope_embedding_base": 1000.0, "rope_position_scale": 1.0},
    **{"blocksparse_block_size": 32, "blocksparse_num_local_blocks": 1},
    "blocksparse_vert_stride": 2,
}
# Longer than a block, so that some keys are hidden, and not as long as two.
LONG, SHORT = 40, 35


@pytest.fixture
def model():
    module = importlib.import_module("mlx_vlm.models.phi3small")
    mx.random.seed(0)
    made = module.Model(module.ModelConfig.from_dict(CONFIG)).language_model
    made._dummy_tokenizer_ids = mx.array([], mx.int32)
    return made


@pytest.fixture
def mended(model):
    hits = Hits()
    attention = importlib.import_module("mlx_vlm.models.phi3small.language").Attention
    with blocks_of_positions(attention, hits):
        yield model
    assert hits.count


def prompt(length):
    return [(7 * n + 3) % 64 for n in range(length)]


def differ(one, other):
    return mx.abs(one - other).max().item() > 1e-4


def in_pieces(model, length, size):
    cache, tokens = model.make_cache(), prompt(length)
    pieces = [tokens[at : at + size] for at in range(0, length, size)]
    return mx.concatenate([model(mx.array([p]), cache=cache).logits for p in pieces], axis=1)


def beside_a_longer_one(model, length):
    """The logits of a row's own tokens, padded on the left."""
    padding = LONG - length
    caches = importlib.import_module("mlx_vlm.models.cache")
    cache = [caches.BatchKVCache([0, padding]) for _ in model.layers]
    rows = mx.array([prompt(LONG), [0] * padding + prompt(length)])
    return model(rows, cache=cache).logits[1:, padding:]


def test_pieces_of_a_prompt_give_what_it_gives_as_a_whole(mended):
    whole = mended(mx.array([prompt(LONG)])).logits
    assert not differ(in_pieces(mended, LONG, 9), whole)
    assert not differ(in_pieces(mended, LONG, LONG), whole)


def test_a_padded_row_gives_what_it_gives_by_itself(mended):
    alone = mended(mx.array([prompt(SHORT)])).logits
    assert not differ(beside_a_longer_one(mended, SHORT), alone)


def test_the_library_does_neither(model):
    assert differ(in_pieces(model, LONG, 9), model(mx.array([prompt(LONG)])).logits)
    alone = model(mx.array([prompt(SHORT)])).logits
    assert differ(beside_a_longer_one(model, SHORT), alone)
