"""mlx-lm imported without transformers, three quarters of the time, until a tokenizer is used."""

from __future__ import annotations

from conformance.backend.late_names import import_with_late_names

# What mlx-lm's own modules take from its tokenizers: for annotations, for ``isinstance``, and to
# load one. Tiny models need none.
_LATE = {
    "transformers": ("PreTrainedTokenizer",),
    "mlx_lm.tokenizer_utils": ("TokenizerWrapper", "load"),
}


def import_mlx_lm() -> None:
    """Import mlx-lm if nobody has; an error shows at the next ``import mlx_lm``."""
    import_with_late_names("mlx_lm", _LATE)
