"""Loads a family's tiny drafters with the library's own loader, and edits drafts to be right.

A drafter of random weights predicts nothing, so nearly all of its drafts are rejected. If a
schedule says so, its drafts are replaced by the oracle's tokens followed by a wrong token: then it
is known which drafts are accepted, and the output of the model must stay the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from conformance.backend.checkpoint import library_errors, verify
from conformance.core.engine_options import Drafting
from conformance.core.errors import ModelError
from conformance.core.family import Facts, Family, Recipe, WeightRule
from conformance.core.rounds import Given, Hints, all_accepted, counted_as_accepted, counted_once
from conformance.core.trace import Claim
from conformance.plugins.mlx_vlm import compat
from conformance.plugins.mlx_vlm.loading import write_checkpoint
from conformance.plugins.mlx_vlm.model import LoadedModel

_ROUNDS = "speculative_total_rounds"  # a drafter's attribute
# Attention outweighs the embedding of the token before: drafts depend on what the drafter reads.
_WEIGHTS = Recipe(rules=(WeightRule("*o_[bp]*.weight", std=3.0, fan_in=True),))


def drafter_of(loaded: LoadedModel, kind: str) -> LoadedModel:
    """The family's drafter of this kind, in its state after loading.

    Source: ``mlx_vlm.server.generation.ResponseGenerator._initialize_model``.

    Raises:
        Unsupported: this release has no such drafter.
        ModelError: the drafter could not be built or loaded, or does not fit the family's model.
    """
    if kind not in loaded.drafters:
        loaded.drafters[kind] = _load(loaded, kind)
    found: LoadedModel = loaded.drafters[kind]
    return found.fresh()


def _load(loaded: LoadedModel, kind: str) -> LoadedModel:
    library = compat.part("speculative.drafters")
    target = loaded.family
    facts = Facts(library=target.facts.library, seed=target.facts.seed, weights=_WEIGHTS)
    family = Family(f"{target.name}, drafter {kind}", facts, target.facts.drafters[kind])
    with TemporaryDirectory(prefix="conformance-", ignore_cleanup_errors=True) as folder:
        written = write_checkpoint(family, Path(folder), dtype=loaded.dtype, seed=loaded.seed)
        with library_errors(family, "loading"):
            model, resolved = library.load_drafter(folder, kind=kind)
            library.validate_drafter_compatibility(loaded.model, model, resolved)
            mx.eval(model.parameters())
        if resolved != kind:
            raise ModelError(f"{family.name}: the library takes it for one of kind {resolved}")
        verify(family, model, written)
    model.eval()
    return LoadedModel(model, None, family, dtype=loaded.dtype, seed=loaded.seed)


class DraftEditor:
    """Records a drafter's drafts, and replaces their tokens with right and wrong ones.

    Args:
        drafter: the result of ``drafter_of``; from now on this object edits its drafts.
        likeliest: gives the token that the model finds likeliest after each text; needed by drafts
            that are to begin with it.
    """

    def __init__(
        self,
        drafter: Any,
        drafting: Drafting,
        likeliest: Callable[[Sequence[Sequence[int]]], list[int]] | None = None,
    ) -> None:
        self._right = drafting.right
        self._likeliest = likeliest if drafting.likely else None
        self._prompts: dict[str, Sequence[int]] = {}
        self._hints: dict[str, Hints | None] = {}
        self._produced: dict[str, list[int]] = {}
        self._batch: list[str] = []
        self._last: list[int] = []
        self._next = 0
        self._round = -1
        self._drafting = False
        self._made: list[tuple[int, tuple[int, ...]]] = []
        # Of the rows of the last round: tokens produced before it, and how many of its were right.
        self._foreseen: dict[str, tuple[int, int]] = {}
        self._rows = 0  # of the last round, also those that had ended
        self._claims: list[Claim] = []
        self._drafter = drafter
        self._counted = self._counts()
        self.drafted: dict[str, int] = {}
        for name in ("draft_block", "draft_block_greedy"):
            if hasattr(drafter, name):
                setattr(drafter, name, self._editing(getattr(drafter, name)))

    def add(self, request_id: str, hints: Hints | None, prompt: Sequence[int] = ()) -> None:
        """Add a request, with the tokens that it should generate."""
        self._hints[request_id] = hints
        self._prompts[request_id] = prompt
        self._produced[request_id] = []

    def begin_step(self, batch: Sequence[str]) -> None:
        """Set the decoding requests, in the order of their rows, before a step of the engine."""
        self._batch = [name for name in batch if self._produced[name]]
        self._last = [self._produced[name][-1] for name in self._batch]
        self._next, self.drafted, self._made = 0, {}, []

    def record(self, request_id: str, token: int) -> None:
        """Record an output token."""
        self._produced.setdefault(request_id, []).append(token)

    def proposed(self) -> dict[str, tuple[int, ...]]:
        """The drafter's own tokens of this step, by request.

        Rows that ended or were removed may still be in the batch. Where one of them ends with the
        same token as another row, it is unknown whose draft is whose, and there are none.
        """
        tokens = [token for token, _ in self._made]
        first = _places(self._last, tokens)
        last = _places(self._last[::-1], tokens[::-1])
        if first is None or last is None or first != [len(tokens) - 1 - i for i in last[::-1]]:
            return {}
        made = (self._made[place][1] for place in first)
        return dict(zip(self._batch, made, strict=True))

    def claims(self) -> tuple[Claim, ...]:
        """What the rounds that have ended since the previous call gave of their right tokens."""
        made, self._claims = tuple(self._claims), []
        return made

    def _end_round(self) -> None:
        """Claim what the last round gave, and was counted, unless all of its rows have ended.

        Nothing is claimed if one had another text, or had ended before: how many of its tokens
        were accepted is unknown, and the others may have got no more than it.
        """
        going: list[Given] = []
        ended: list[Given] = []
        before, self._counted = self._counted, self._counts()
        rounds, accepted = (now - then for now, then in zip(self._counted, before, strict=True))
        for name, (start, right) in self._foreseen.items():
            produced, hints = self._produced[name], self._hints[name]
            if hints is None or tuple(produced) != hints.right[: len(produced)]:
                break
            given = Given(len(produced) - start, right)
            (going if name in self._batch else ended).append(given)
        else:
            if going and self._rows == len(self._foreseen):
                self._claims.append(all_accepted(going, ended))
                if hasattr(self._drafter, _ROUNDS):  # older releases do not count them
                    self._claims.append(counted_once(rounds, self._rows))
                    mean = accepted / max(rounds, 1)
                    self._claims.append(counted_as_accepted(mean, going, ended))
        self._foreseen, self._rows = {}, 0

    def _counts(self) -> tuple[float, float]:
        """The drafter's counts so far: of rounds, or of rows and rounds, and of accepted tokens."""
        names = (_ROUNDS, "speculative_total_accepted")
        rounds, accepted = (float(getattr(self._drafter, name, 0)) for name in names)
        return rounds, accepted

    def _editing(self, draft: Callable[..., mx.array]) -> Callable[..., mx.array]:
        def edited(last: Any, *args: Any, **kwargs: Any) -> mx.array:
            if self._drafting:  # one of the functions calls the other
                return draft(last, *args, **kwargs)
            self._drafting = True
            try:
                made = draft(last, *args, **kwargs)
            finally:
                self._drafting = False
            tokens = [last] if isinstance(last, int) else last.reshape(-1).tolist()
            return self._edited(tokens, made)

        return edited

    def _edited(self, last: Sequence[int], made: mx.array) -> mx.array:
        """The edited drafts ``made``, ``[rows, tokens]``; ``last`` precedes each row's draft."""
        if not self._next:
            self._round += 1
        if not self._made:
            self._end_round()
        self._rows += len(last)
        drafts = np.array(made)
        known = []
        for draft, token in zip(drafts, last, strict=True):
            self._made.append((token, tuple(draft.tolist())))
            place = self._find(token)
            if place is not None:
                known.append((draft, self._batch[place]))
                self.drafted[self._batch[place]] = len(draft)
                self._write(draft, place)
        if self._likeliest is not None and known:
            texts = [[*self._prompts[name], *self._produced[name]] for _, name in known]
            for (draft, _), token in zip(known, self._likeliest(texts), strict=True):
                draft[0] = token
        edits = bool(self._right) or self._likeliest is not None
        return mx.array(drafts).astype(made.dtype) if edits else made

    def _find(self, last: int) -> int | None:
        """The next row that ends with ``last``: finished rows may still be in the batch."""
        for place in range(self._next, len(self._batch)):
            if self._last[place] == last:
                self._next = place + 1
                return place
        return None

    def _write(self, draft: npt.NDArray[Any], place: int) -> None:
        name = self._batch[place]
        hints = self._hints[name]
        if not self._right or hints is None:
            return
        right = self._right[(self._round + place) % len(self._right)]
        start = len(self._produced[name])
        for index, token in enumerate(hints.right[start:][: len(draft)]):
            # The tokens after a wrong one are right again, but still must not be accepted.
            draft[index] = token if index != right else hints.wrong[start + index]
        known = zip(draft.tolist(), hints.right[start:], strict=False)
        agreed = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], known))
        self._foreseen[name] = (start, agreed)


def _places(few: Sequence[int], many: Sequence[int]) -> list[int] | None:
    """The first places in ``many`` at which ``few`` stand in order, if they do."""
    places, rest = [], iter(enumerate(many))
    for wanted in few:
        place = next((place for place, token in rest if token == wanted), None)
        if place is None:
            return None
        places.append(place)
    return places
