"""Weights that are no finite numbers are found in each dtype, and blamed on file and tensor."""

import json
import struct

import pytest

from conformance.core.errors import CheckpointError
from conformance.tools.checkpoints import finite
from conformance.tools.checkpoints.finite import check_finite, not_finite
from conformance.tools.checkpoints.folder import look

# By dtype: a number that is finite (the largest there is), an infinity where there is one, a NaN.
BITS = {
    "F64": ("<Q", 0x7FEFFFFFFFFFFFFF, 0xFFF0000000000000, 0x7FF8000000000000),
    "F32": ("<I", 0x7F7FFFFF, 0x7F800000, 0xFFC00001),
    "F16": ("<H", 0x7BFF, 0xFC00, 0x7E00),
    "BF16": ("<H", 0xFF7F, 0x7F80, 0x7FC0),
    "F8_E5M2": ("<B", 0x7B, 0x7C, 0xFF),
    "F8_E4M3": ("<B", 0x7E, None, 0xFF),
    "F8_E8M0": ("<B", 0xFE, None, 0xFF),
}


def written(folder, config=None, **tensors):
    """The folder with tensors of a dtype, a shape and numbers as bits."""
    header, data = {}, b""
    for name, (dtype, shape, bits) in tensors.items():
        form = BITS[dtype][0] if dtype in BITS else "<B"
        packed = b"".join(struct.pack(form, one) for one in bits)
        ends = [len(data), len(data) + len(packed)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": ends}
        data += packed
    text = json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    if config:
        old = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**old, **config}))
    return look(folder)


@pytest.mark.parametrize("dtype", BITS)
def test_each_dtype_has_finite_numbers_infinities_and_nan(dtype, folder):
    _, largest, infinity, nan = BITS[dtype]
    right = (dtype, [2, 2], [largest, 0, 1, largest])
    assert not list(not_finite(written(folder, a=right)))
    for bits, is_nan in ((infinity, False), (nan, True)):
        if bits is not None:
            (odd,) = not_finite(written(folder, a=right, b=(dtype, [3], [0, bits, bits])))
            assert (odd.tensor, odd.count, odd.nan, odd.first) == ("b", 2, is_nan, 1)


def test_a_tensor_is_read_in_pieces(folder, monkeypatch):
    monkeypatch.setattr(finite, "_PIECE", 8)
    nan, infinity = BITS["F16"][3], BITS["F16"][2]
    bits = [0] * 9 + [infinity, nan] + [0] * 3 + [nan]
    (odd,) = not_finite(written(folder, a=("F16", [3, 5], bits)))
    assert (odd.count, odd.nan, odd.first) == (3, False, 9)


@pytest.mark.parametrize(
    ("config", "bad"),
    [
        ({"quantization": {"mode": "mxfp4", "bits": 4, "group_size": 32}}, 0xFF),
        ({"quantization": {"mode": "affine", "a": {"mode": "nvfp4"}}}, 0x7F),
        ({"quantization_config": {"quant_method": "mxfp4"}}, 0xFF),
    ],
)
def test_scales_that_are_bytes_are_found(config, bad, folder, library, tmp_path):
    tensors = {"a.scales": ("U8", [2], [1, bad]), "a.weight": ("U8", [2], [0xFF, 0x7F])}
    found = written(folder, config, **tensors)
    library.not_finite = lambda folder, *, trusted: None
    with pytest.raises(CheckpointError, match=r"tensor 'a\.scales' holds NaN at \[1\]"):
        check_finite(library, found, tmp_path, trusted=False)
    affine = written(
        folder, {"quantization": {"mode": "affine"}, "quantization_config": {}}, **tensors
    )
    assert not list(not_finite(affine)), "bytes of other kinds are whole numbers"


def test_the_sentence_names_file_tensor_and_place(folder, library, tmp_path):
    found = written(folder, **{"a.weight": ("F32", [2, 2], [0, 0, 0, BITS["F32"][2]])})
    with pytest.raises(
        CheckpointError,
        match=r"model\.safetensors: tensor 'a\.weight' holds an infinity at \[1, 1\] \(1 of its 4 ",
    ):
        check_finite(library, found, tmp_path, trusted=False)


def test_what_the_library_leaves_out_does_no_harm(folder, library, tmp_path):
    odd = ("F16", [1], [BITS["F16"][2]])
    tensors = {"h.0.masked_bias": odd, "h.0.attn.weight": odd}
    found = written(folder, **tensors)
    library.not_finite = lambda folder, *, trusted: None
    check_finite(library, found, tmp_path, trusted=False)
    library.not_finite = lambda folder, *, trusted: "model.layers.0.attn.weight"
    with pytest.raises(CheckpointError, match=r"tensor 'h\.0\.attn\.weight' holds"):
        check_finite(library, found, tmp_path, trusted=False)


def test_a_checkpoint_is_looked_through_once(folder, library, tmp_path, monkeypatch):
    found = written(folder, a=("F32", [1], [BITS["F32"][3]]))
    for _ in range(2):
        with pytest.raises(CheckpointError, match="holds NaN"):
            check_finite(library, found, tmp_path, trusted=False)
        monkeypatch.setattr(finite, "not_finite", lambda folder: pytest.fail("read again"))
    (kept,) = tmp_path.glob("*-finite")
    kept.write_bytes(b"[")
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="holds NaN"):
        check_finite(library, found, tmp_path, trusted=False)


def test_nothing_is_kept_where_nothing_can_be_written(folder, library, tmp_path):
    (tmp_path / "file").write_text("in the way")
    found = written(folder, a=("F32", [1], [0]))
    check_finite(library, found, tmp_path / "file" / "digests", trusted=False)


def test_a_tensor_without_numbers_is_finite(folder):
    assert not list(not_finite(written(folder, a=("F32", [0, 3], []))))
