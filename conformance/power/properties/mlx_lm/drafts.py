"""Properties of mlx-lm's speculative decoding, which its server and stream_generate alone use."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import mlx.core as mx
from mlx_lm.generate import speculative_generate_step

from conformance.core.properties import Property

_FILE = "mlx_lm/generate.py"
_PROMPT, _LIMIT, _DRAFTED, _VOCAB = [5, 2, 7, 11, 3, 23], 30, (1, 2, 4), 31


def draft_properties() -> list[Property]:
    """What is right of tokens, drafts and histories, whatever the drafter."""
    functions = ("speculative_generate_step",)
    return [
        Property(f"drafts: {name}", _FILE, functions, problems)
        for name, problems in (
            ("tokens", _tokens),
            ("those of a twin", _of_a_twin),
            ("what processors are shown", _histories),
            ("what processors are shown of a prompt", _of_the_prompt),
        )
    ]


class _Model:
    """A model whose next token depends on each token of its cache and on its place there.

    Args:
        wrong: the drafter is wrong where the right token is a multiple of this; 0: never.
    """

    layers = (None,)

    def __init__(self, wrong: int = 0) -> None:
        self._wrong = wrong

    def __call__(self, tokens: mx.array, cache: Any) -> mx.array:
        """Logits ``[1, tokens, vocab]``."""
        count = tokens.shape[1]
        places = mx.arange(count) + cache[0].offset + 1
        keys, _ = cache[0].update_and_fetch(*[(tokens * places)[:, None, :, None]] * 2)
        best = mx.cumsum(keys[0, 0, :, 0])[-count:] % _VOCAB
        if self._wrong:
            best = mx.where(best % self._wrong == 0, (best + 1) % _VOCAB, best)
        return 9.0 * (best[:, None] == mx.arange(_VOCAB))[None]


def _right() -> list[int]:
    """The greedy continuation of the prompt, by the model's definition."""
    whole = list(_PROMPT)
    while len(whole) < len(_PROMPT) + _LIMIT:
        whole.append(sum(token * place for place, token in enumerate(whole, 1)) % _VOCAB)
    return whole[len(_PROMPT) :]


def _decoded(drafter: _Model, drafted: int, *processors: Any) -> list[tuple[int, bool]]:
    """Each token, and whether it was the drafter's."""
    made = speculative_generate_step(
        mx.array(_PROMPT),
        _Model(),
        drafter,
        num_draft_tokens=drafted,
        max_tokens=_LIMIT,
        logits_processors=list(processors) or None,
    )
    return [(int(token), bool(own)) for token, _, own in made]


def _tokens() -> Iterator[str]:
    for wrong in (0, 2, 3):
        for drafted in _DRAFTED:
            tokens = [token for token, _ in _decoded(_Model(wrong), drafted)]
            if tokens != _right():
                yield f"with {drafted} drafts, of which some are wrong: {tokens}, not {_right()}"


def _of_a_twin() -> Iterator[str]:
    """Each draft of the model's own twin is right: only the token after them is the model's."""
    for drafted in _DRAFTED:
        own = [own for _, own in _decoded(_Model(), drafted)]
        wanted = [bool((place + 1) % (drafted + 1)) for place in range(_LIMIT)]
        if own != wanted:
            yield f"of {drafted} drafts at once, all right, {sum(own)} in all are taken"


def _histories() -> Iterator[str]:
    """A processor is shown what it was shown of the prompt and all that came after."""
    right = _right()
    for drafted in _DRAFTED:
        shown: list[Any] = []
        _decoded(_Model(), drafted, partial(_shown, shown))
        for history in shown:
            wanted = (shown[0] + right)[: len(history)]
            if history != wanted:
                yield f"with {drafted} drafts at once: {history}, not {wanted}"


def _of_the_prompt() -> Iterator[str]:
    """A processor is shown all of a prompt before an answer's first token, as without a drafter."""
    shown: list[Any] = []
    _decoded(_Model(), 1, partial(_shown, shown))
    if shown[0] != _PROMPT:
        yield f"of the prompt {_PROMPT} it is shown {shown[0]}"


def _shown(shown: list[Any], tokens: mx.array, logits: mx.array) -> mx.array:
    shown.append(tokens.tolist())
    return logits
