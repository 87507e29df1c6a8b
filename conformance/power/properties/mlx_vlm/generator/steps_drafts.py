"""The requests of mlx-vlm's batch of prompts if a smaller model drafts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx

from conformance.backend.expected_rows import Asked
from conformance.core.faults.patching import replace, together
from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat
from conformance.power.properties.mlx_vlm.generator.expected_steps import Limits
from conformance.power.properties.mlx_vlm.generator.generators import Way, expect, insert, make
from conformance.power.properties.mlx_vlm.generator.steps_stand_ins import QUANTIZED, Entry, Next

ar: Any = compat.part("generate.ar")

_FILE = "mlx_vlm/generate/ar.py"


def draft_properties() -> list[Property]:
    """The properties of prompts with drafted answers, and of fused decoding in a generator."""
    names = ("PromptProcessingBatch.*", "SpeculativeGenerationBatch.__init__")
    fused = ("BatchGenerator.*", "PromptProcessingBatch.*", "GenerationBatch.*")
    return [
        Property("generator: prompts of drafts", _FILE, names, _drafts),
        Property("generator: fused decoding of all rows", _FILE, fused, _fused),
    ]


class _Target(Next):
    """A model for which a drafter drafts.

    Attributes:
        policies: the arguments of questions whether a prompt may be cut into pieces.
    """

    def __init__(self) -> None:
        super().__init__()
        self.policies: list[dict[str, Any]] = []

    def chunked_prefill_policy(self, **given: Any) -> bool:
        """Allow pieces."""
        self.policies.append(given)
        return True

    def __call__(self, tokens: mx.array, **options: Any) -> Any:
        """Logits, and the states that a drafter needs."""
        found = super().__call__(tokens, **options)
        found.shared_kv_states = f"states of {tokens.shape[1]}"
        return found


class _Prefill:
    """The states of all pieces that a drafter needs."""

    def __init__(self, kind: str, drafter: str) -> None:
        self.kwargs = {"layers": (kind, drafter)}
        self.pieces = 0

    def append(self, _: Any) -> None:
        self.pieces += 1

    def finish(self, output: Any) -> Any:
        output.pieces = self.pieces + 1
        return output


@contextmanager
def _recorded() -> Iterator[list[Any]]:
    made: list[Any] = []

    def make(model: Any, *, make_cache: Any, **given: Any) -> list[Entry]:
        made.append((model, given, make_cache("language model", "padding")))
        return [Entry()]

    with together(
        replace(ar, "SpeculativePrefill", _Prefill),
        replace(ar, "speculative_prefill_kwargs", lambda *of: {"layers": of}),
        replace(ar, "speculative_hidden_state", lambda kind, output: (kind, output.pieces)),
        replace(ar, "make_speculative_prompt_cache", make),
        replace(ar, "_make_cache", lambda *given, **options: (given, options)),
    ):
        yield made


def _drafts() -> Iterator[str]:
    """Caches with each setting, pieces with the states for a drafter, and a drafting batch."""
    for kind, step in itertools.product(("mtp", "dflash"), (None, 2)):
        model = _Target()
        with _recorded() as made:
            batch = ar.PromptProcessingBatch(
                model,
                [7, 8],
                [[1, 2, 3, 4, 5], [6]],
                [9, 4],
                mx.zeros((2, 5, 1)),
                {"scalar": 3},
                prefill_step_size=step,
                draft_model="drafter",
                draft_kind=kind,
                draft_block_size=4,
                greedy_sampling=step is None,
                **QUANTIZED,
            )
            pieces = []
            while batch.needs_processing():
                pieces.append(batch.prompt_step())
            caches = batch.prompt_cache
            got = batch.generate(
                lambda scores: mx.argmax(scores, axis=-1), "stop", top_logprobs_k=2
            )
        cache = ("language model", "padding"), {**QUANTIZED, "prefill_length": 5}
        given = {"draft_kind": kind, "batch_size": 2, "left_padding": [0, 4]}
        if made != [(model, given, cache)]:
            yield f"caches are made with {made}"
        yield from _policy_off(model, kind, step, caches)
        want = [2, 2] if step else []
        options = [
            {name: call[1].get(name) for name in ("layers", "scalar")} for call in model.calls
        ]
        if pieces != want or options != [{"layers": (kind, "drafter"), "scalar": 3}] * len(options):
            yield f"pieces of {pieces} are computed with {options}"
        if len(options) != len(want) + 1:
            yield f"the model is called {len(options)} times"
        yield from _batch_off(got, kind, step, caches)


def _policy_off(model: _Target, kind: str, step: int | None, caches: Any) -> Iterator[str]:
    """The question whether a prompt may be cut has all arguments of the model's call."""
    if step is None:
        if model.policies:
            yield "though no prompt is cut it is asked whether it may be"
        return
    (asked,) = model.policies
    shapes = [asked.pop(name).shape for name in ("input_ids", "inputs_embeds")]
    want = {
        "prompt_cache": caches,
        "draft_model": "drafter",
        "draft_kind": kind,
        "prefill_kwargs": {"scalar": 3, "layers": (kind, "drafter")},
    }
    if shapes != [(2, 5), (2, 5, 1)] or asked != want:
        yield f"whether prompts may be cut is asked with {shapes}, {asked}"


def _batch_off(got: Any, kind: str, step: int | None, caches: list[Any]) -> Iterator[str]:
    if not isinstance(got, ar.SpeculativeGenerationBatch):
        yield f"rows that draft are {type(got)}"
        return
    left = 1 if step else 5
    found = {name: getattr(got, name) for name in _NAMES}
    want = {
        "draft_model": "drafter",
        "draft_kind": kind,
        "uids": [7, 8],
        "prompt_cache": caches,
        "stop_criteria": "stop",
        "max_tokens": [9, 4],
        "hidden": (kind, 3 if step else 1),
        "shared_kv_states": f"states of {left}" if kind == "mtp" else None,
        "draft_block_size": 4,
        "token_dtype": mx.int32,
        "greedy_sampling": step is None,
        "compute_logprobs": False,
    }
    if found != want:
        yield f"rows draft with {found}, not {want}"
    arrays = got.first_tokens.tolist(), got.prompt_tokens.tolist()
    prompts = [[5], [6]] if step else [[1, 2, 3, 4, 5], [0, 0, 0, 0, 6]]
    if arrays != ([6, 7], prompts):
        yield f"rows draft after {arrays}"


_NAMES = (
    *("draft_model", "draft_kind", "uids", "prompt_cache", "stop_criteria", "max_tokens"),
    *("hidden", "shared_kv_states", "draft_block_size", "token_dtype", "greedy_sampling"),
    "compute_logprobs",
)


def _fused() -> Iterator[str]:
    """A model's own greedy decoding is used whenever only the best token is requested."""
    for greedy, scores in itertools.product((False, True), (False, True)):
        way = Way(Limits(4, 2, 2), logprobs=scores)
        given = {"greedy_sampling": greedy, "sampler": lambda s: mx.argmax(s, axis=-1)}
        generator, model = make(way, **given)
        asked: list[int] = []

        def decode(
            tokens: mx.array, model: Any = model, asked: list[int] = asked, **options: Any
        ) -> mx.array:
            asked.append(len(tokens))
            return mx.argmax(model(tokens, **options).logits[:, -1], axis=-1)

        vars(model)["fused_greedy_decode"] = decode
        some = [Asked([1, 2, 3], 4), Asked([4, 6], 3), Asked([7], 5), Asked([8, 9, 1, 2], 4)]
        numbers = insert(generator, some)
        tokens: dict[int, list[int]] = {number: [] for number in numbers}
        while generator.has_work:
            for one in generator.next()[1]:
                tokens[one.uid].append(one.token)
        want = [[one.token for one in answers] for answers in expect(way, some)]
        if [*tokens.values()] != want:
            yield f"greedy {greedy}, scores {scores}: {tokens}, not {want}"
        if bool(asked) != (greedy and not scores):
            yield f"greedy {greedy}, scores {scores}: rows decode by themselves {asked}"
