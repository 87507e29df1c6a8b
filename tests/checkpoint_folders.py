"""Checkpoint folders like those that users have: real files, a real tokenizer, tiny weights.

The weights are those of a tiny family, because weights drawn as usual make an insensitive
model; all else is written and converted by the libraries themselves.
"""

import json
import shutil

import mlx.core as mx
import mlx_lm
import mlx_lm.utils
from mlx.utils import tree_flatten
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from conformance.run.registry import build_registry
from conformance.tools.checkpoints.opening import BUILT_IN


def make_folder(folder, *, library="mlx_lm", family="llama", vocab=320, dtype="float32", **config):
    """A checkpoint of a tiny family; ``config`` changes fields of its config.

    With a tokenizer that is trained on the built-in texts: bytes and some pairs of them.
    """
    registry = build_registry()
    known = registry.families[library, family]
    changed = {**known.config, **config}
    if library == "mlx_lm":
        changed["vocab_size"] = vocab
    made = type(known)(known.name, known.facts, changed, known.path)
    folder.mkdir(parents=True)
    loading = type(registry.libraries[library]).load.__globals__["loading"]
    loading.write_checkpoint(made, folder, dtype=dtype, seed=0)
    write_tokenizer(folder, changed["vocab_size"])
    return folder


def write_tokenizer(folder, vocab):
    """A byte-level BPE of at most ``vocab`` tokens, as ``tokenizers`` trains and writes it."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocab, special_tokens=["<s>", "</s>"], show_progress=False, min_frequency=1
    )
    tokenizer.train_from_iterator(BUILT_IN, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "</s>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def quantized(folder, target, bits):
    """``folder`` converted by ``mlx_lm.convert``."""
    mlx_lm.convert(str(folder), str(target), quantize=True, q_bits=bits, q_group_size=32)
    return target


def sharded(folder, target, limit=60_000):
    """``folder`` with its weights in several files and an index, as the library writes them."""
    shutil.copytree(folder, target)
    (target / "model.safetensors").unlink()
    model, _ = mlx_lm.utils.load_model(folder)
    weights = dict(tree_flatten(model.parameters()))
    names, shards, size = {}, [{}], 0
    for name, value in weights.items():
        if size + value.nbytes > limit:
            shards.append({})
            size = 0
        shards[-1][name] = value
        size += value.nbytes
    for index, shard in enumerate(shards, start=1):
        file = f"model-{index:05d}-of-{len(shards):05d}.safetensors"
        mx.save_safetensors(str(target / file), shard, metadata={"format": "mlx"})
        names |= dict.fromkeys(shard, file)
    index = {"metadata": {}, "weight_map": names}
    (target / "model.safetensors.index.json").write_text(json.dumps(index))
    return target
