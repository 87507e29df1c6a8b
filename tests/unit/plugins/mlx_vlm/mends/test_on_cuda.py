"""What goes wrong on CUDA: mends change what mlx is given, and nothing of the right results."""

import mlx.core as mx
import pytest
from mlx_vlm.models.ministral3 import language as ministral3
from mlx_vlm.models.youtu_vl.vision import Siglip2Encoder

from conformance.core.faults.declaration import Hits
from conformance.plugins.mlx_vlm.mends.masks_of_columns import padding_is_scaled_as_a_first_token
from conformance.plugins.mlx_vlm.mends.on_cuda import (
    NO_ROWS,
    sides_of_images_are_columns,
)


@pytest.mark.parametrize("rows", [0, 3])
def test_attention_without_rows_is_not_asked_for(monkeypatch, rows):
    def attention(q, *args, **options):
        asked.append(q.shape[2])
        return right(q, *args, **options)

    right, asked, hits = mx.fast.scaled_dot_product_attention, [], Hits()
    monkeypatch.setattr(mx.fast, "scaled_dot_product_attention", attention)
    queries, keys = mx.ones((1, 2, rows, 16), mx.bfloat16), mx.ones((1, 2, rows, 16), mx.bfloat16)
    values = mx.ones((1, 2, rows, 8), mx.bfloat16)
    with NO_ROWS.repair(hits):
        found = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=1.0)
    assert (found.shape, found.dtype) == ((1, 2, rows, 8), mx.bfloat16)
    assert mx.all(found == 1)
    assert (asked, hits.count) == (([], 1) if rows == 0 else ([3], 0))


@pytest.mark.parametrize("images", [1, 2])
def test_products_of_sides_have_the_stride_1(monkeypatch, images):
    def encode(_self, _states, sides):
        products.append(sides[:, 0] * sides[:, 1])

    def strides():
        mx.eval(products[-1])
        return [step // 4 for step in memoryview(products[-1]).strides]

    products, hits = [], Hits()
    monkeypatch.setattr(Siglip2Encoder, "__call__", encode)
    sides = mx.array([[4, 6]] * images, mx.int32)
    Siglip2Encoder.__call__(None, None, sides)
    assert strides() == ([2] if images == 1 else [1])
    with sides_of_images_are_columns.repair(hits):
        Siglip2Encoder.__call__(None, None, sides)
    assert (strides(), products[-1].tolist(), hits.count) == ([1], [24] * images, 1)


def test_only_padding_is_scaled_otherwise():
    hits, offsets = Hits(), mx.array([-2, 0, 9000])
    right = ministral3._get_llama_4_attn_scale(4, offsets, 0.1, 8192)
    with padding_is_scaled_as_a_first_token.repair(hits):
        found = ministral3._get_llama_4_attn_scale(4, offsets, 0.1, 8192)
        alone = ministral3._get_llama_4_attn_scale(4, 9000, 0.1, 8192)
    assert right[0, 0, :2, 0].tolist() == [float("-inf")] * 2
    assert found[0, 0, :2, 0].tolist() == [1.0] * 2
    assert mx.array_equal(found[1:], right[1:])
    assert mx.array_equal(found[2, 0], alone)
    assert hits.count == 1
