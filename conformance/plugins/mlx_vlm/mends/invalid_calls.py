"""Requests that `BatchGenerator` should refuse, or should accept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, before, replace
from conformance.core.mends import mend
from conformance.plugins.mlx_vlm import compat

_SIZES = ("completion_batch_size", "prefill_batch_size", "prefill_step_size")
_SCHEMES = ("uniform", "turboquant")


@mend("fewer-slots-than-prefill")
def as_many_are_let_in_as_have_room(hits: Hits) -> Patch:
    """Requests are let in as soon as a slot is free, as many as there are slots."""
    name = "prefill_batch_size"

    def room(self: Any) -> int:
        size = int(vars(self)[name])
        free = self.completion_batch_size - len(self._generation_batch)
        fewer = 0 < free < size
        hits.hit_if(fewer and self._unprocessed_sequences)
        return free if fewer else size

    def keep(self: Any, size: int) -> None:
        vars(self)[name] = size

    return replace(compat.generation().BatchGenerator, name, property(room, keep))


@mend("insert-lists-of-other-lengths")
def lists_are_of_one_length(hits: Hits) -> Patch:
    """Lists that are not as long as that of the prompts are refused, and so are embeddings.

    No prompt of those that are inserted here has a token that stands for several embeddings.
    """

    def check(
        _: Any, prompts: Any, max_tokens: Any = None, prompt_kwargs: Any = None, **__: Any
    ) -> None:
        lists = [each for each in (max_tokens, prompt_kwargs) if isinstance(each, Sequence)]
        wrong = any(len(each) != len(prompts) for each in lists) or any(
            embedded is not None and embedded.shape[1] != len(prompt)
            for prompt, given in zip(prompts, prompt_kwargs or (), strict=False)
            for embedded in [given.get("inputs_embeds")]
        )
        hits.hit_if(wrong)
        if wrong:
            raise ValueError("max_tokens, prompt_kwargs and embeddings must be as many as prompts")

    return before(compat.generation().BatchGenerator, "insert", check)


@mend("requests-without-work", "requests-without-work-have-positions")
def requests_have_work(hits: Hits) -> Patch:
    """A prompt of no tokens is refused, and so are `max_tokens` below 1."""

    def check(_: Any, prompts: Any, max_tokens: Any = None, **__: Any) -> None:
        counts = max_tokens if isinstance(max_tokens, Sequence) else [max_tokens]
        wrong = not all(map(len, prompts)) or any(n is not None and n < 1 for n in counts)
        hits.hit_if(wrong)
        if wrong:
            raise ValueError("a prompt and max_tokens must be at least 1 long")

    return before(compat.generation().BatchGenerator, "insert", check)


@mend("generator-takes-any-size")
def sizes_and_scheme_are_checked(hits: Hits) -> Patch:
    """A batch size or prefill step below 1 is refused, and so is a scheme that does not exist."""

    def check(*_: Any, **options: Any) -> None:
        given = {name: options.get(name) for name in _SIZES}
        wrong = [name for name, size in given.items() if size is not None and size < 1]
        if options.get("kv_quant_scheme", _SCHEMES[0]) not in _SCHEMES:
            wrong.append("kv_quant_scheme")
        hits.hit_if(wrong)
        if wrong:
            raise ValueError(f"{wrong[0]} is out of range")

    return before(compat.generation().BatchGenerator, "__init__", check)
