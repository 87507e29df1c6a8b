"""falcon_ocr: positions of padding, arrays cut twice, kept rope deltas, no mask without a cache.

- Padded rows: mlx_vlm/models/falcon_ocr/language.py:299 raises negative offsets to 0, so that the
  prefill counts padding and decode steps do not.
- Images: the batch generator hands positions to the model cut to the piece that it prefills;
  language.py:383 to 389 cuts them by the cache's offset once more, and nothing is left for the
  last token. Every image request of the server fails. The model's ``no_chunked_prefill``
  (falcon_ocr.py:17) would help, but the server gives the generator the language model.
- Rope deltas of the last image stay on the model (line 368): texts after it are decoded with them.
- Without a cache (training, perplexity) language.py:323 makes no mask: tokens see what follows.
Mended by plain offsets, by one cut, by deltas of each request, and by a mask in either case.
"""

import sys
from importlib.metadata import version

import mlx.core as mx
from mlx.utils import tree_map
from mlx_vlm.models.cache import BatchKVCache, KVCache
from mlx_vlm.models.falcon_ocr.config import ModelConfig
from mlx_vlm.models.falcon_ocr.language import LanguageModel

CONFIG = {
    **{"model_type": "falcon_ocr", "vocab_size": 64, "dim": 32, "n_layers": 2, "n_heads": 2},
    **{"head_dim": 16, "n_kv_heads": 1, "ffn_dim": 32, "max_seq_len": 64, "rope_theta": 1000.0},
}
LONG, SHORT = [5, 9, 33, 7, 11, 2], [50, 29, 14]
PAD = len(LONG) - len(SHORT)


def caches(padding: list[int] | None) -> list[object]:
    return [BatchKVCache(padding) if padding else KVCache() for _ in range(CONFIG["n_layers"])]


def size(x: mx.array) -> float:
    return mx.abs(x).max().item()


def padded_row(model: LanguageModel) -> float:
    """How far a padded row's first decode step is from the same row alone."""
    cache, alone = caches([0, PAD]), caches(None)
    model(mx.array([LONG, [0] * PAD + SHORT]), cache=cache)
    model(mx.array([SHORT]), cache=alone)
    beside = model(mx.array([[8], [8]]), cache=cache).logits[1]
    wanted = model(mx.array([[8]]), cache=alone).logits[0]
    return size(beside - wanted) / size(wanted)


def without_cache(model: LanguageModel) -> float:
    """How far the logits of a first token are from its own alone."""
    whole = model(mx.array([LONG])).logits[0, 0]
    alone = model(mx.array([LONG[:1]])).logits[0, 0]
    return size(whole - alone) / size(alone)


def after_image(model: LanguageModel) -> float:
    """How far a text's first decode step is off after the deltas of another request's image."""
    steps = []
    for deltas in (mx.array([[0]]), mx.array([[-9]])):
        image, text = caches(None), caches(None)
        model(mx.array([LONG]), cache=image, rope_deltas=deltas)
        model(mx.array([SHORT * 4]), cache=text)
        steps.append(model(mx.array([[8]]), cache=text).logits[0])
    model._rope_deltas = None
    return size(steps[1] - steps[0]) / size(steps[0])


def last_piece(model: LanguageModel) -> str:
    """What becomes of the last token of a prompt with the positions that the generator hands."""
    cache = caches([0])
    embeddings = model.model.embed_tokens(mx.array([LONG]))
    places, cells = mx.arange(len(LONG))[None], mx.zeros((1, len(LONG), 2))
    try:
        for piece in (slice(0, -1), slice(-1, None)):
            out = model(
                mx.array([LONG[piece]]),
                inputs_embeds=embeddings[:, piece],
                cache=cache,
                position_ids=places[:, piece],
                pos_hw=cells[:, piece],
            )
        mx.eval(out.logits)
    except ValueError as error:
        return f"ValueError: {error}"
    return "logits"


def main() -> int:
    mx.random.seed(0)
    config = ModelConfig.from_dict(dict(CONFIG))
    model = LanguageModel(config.text_config, config)
    model.update(tree_map(lambda w: w + 0.2 * mx.random.normal(w.shape), model.parameters()))
    beside, future, piece = padded_row(model), without_cache(model), last_piece(model)
    after = after_image(model)
    print(f"mlx-vlm {version('mlx-vlm')}: a padded row is {beside:.2g} off, expected 0")
    print(f"the first token is {future:.2g} off by what follows without a cache, expected 0")
    print(f"a text is {after:.2g} off by the image of the request before it, expected 0")
    print(f"the last piece of a prompt with positions gives {piece}, expected logits")
    return 0 if max(beside, future, after) < 1e-3 and piece == "logits" else 1


if __name__ == "__main__":
    sys.exit(main())
