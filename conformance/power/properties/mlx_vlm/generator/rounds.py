"""mlx-vlm's batch of rows that draft: each token of a round goes to its row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx

from conformance.core.properties import Property
from conformance.plugins.mlx_vlm import compat

ar: Any = compat.part("generate.ar")


def round_properties() -> list[Property]:
    """The property of ``SpeculativeGenerationBatch``."""
    names = ("SpeculativeGenerationBatch*",)
    return [Property("generator: rounds of drafts", "mlx_vlm/generate/ar.py", names, _rounds)]


def _rounds() -> Iterator[str]:
    """Each token of a round goes to its row, until the row ends; a round is one call."""
    meta = [{"round_pos": n, "round_len": 3} for n in (0, 2)]
    rounds = [
        ([1, 2, 3], meta[0]),
        # Without a position, it is the first.
        ([4, None, 9], {"round_len": 2}),
        ([5, 6, 7], meta[1]),
        ([8, 9, 3], None),
        ([6, None, 3], {"round_pos": 0}),
    ]
    asked: list[Any] = []

    def run(*given: Any, **options: Any) -> Iterator[Any]:
        asked.append((given, options))
        yield from rounds

    def begin(most: list[int], uids: list[int]) -> Any:
        first, stop = mx.array([0, 0, 0][: len(uids)]), lambda token: token == 9
        return ar.SpeculativeGenerationBatch(
            *("model", "drafter", "kind", uids, first, ["cache"], "sampler", stop, most),
            *("hidden", {"shared": 1}, "prompt"),
            draft_block_size=4,
            greedy_sampling=True,
        )

    right = ar.run_speculative_server_rounds
    try:
        ar.run_speculative_server_rounds = run
        yield from _round_answers(begin, asked)
    finally:
        ar.run_speculative_server_rounds = right


def _round_answers(begin: Callable[..., Any], asked: list[Any]) -> Iterator[str]:
    batch = begin([6, 9, 4], [10, 11, 12])
    if (len(batch), batch.uids, batch.is_speculative) != (3, [10, 11, 12], True):
        yield f"a new batch has {batch.uids}"
    got = []
    while len(batch):
        given = batch.next()
        got.append([(one.uid, one.token, one.finish_reason) for one in given])
        if any(one.token_logprob != 0.0 or one.top_logprobs is not None for one in given):
            yield f"drafted tokens have logprobs: {given}"
    if batch.next() != [] or batch.uids or batch.prompt_cache or batch._rounds_iter is not None:
        yield "a batch that has ended holds rows or caches"
    want = [
        [(10, 0, None), (11, 0, None), (12, 0, None)],
        [
            *((10, 1, None), (11, 2, None), (12, 3, None), (10, 4, None), (12, 9, "stop")),
            *((10, 5, None), (11, 6, None)),
        ],
        [(10, 8, None), (11, 9, "stop")],
        [(10, 6, "length")],
    ]
    if got != want:
        yield f"the rows get {got}, not {want}"
    given, options = asked[-1]
    check = options.pop("stop_check")
    said = {
        "draft_kind": "kind",
        "max_tokens": 9,
        "sampler": "sampler",
        "draft_block_size": 4,
        "token_dtype": mx.int32,
        "greedy_sampling": True,
        "shared_kv_states": {"shared": 1},
        "eos_token_ids": None,
        "prompt_tokens": "prompt",
        "row_ids": [0, 0, 0],
    }
    first = options.pop("first_bonus")
    if (
        given != ("model", "drafter", ["cache"], "hidden")
        or options != said
        or first.tolist() != [0] * 3
    ):
        yield f"rounds are asked for with {given}, {options}"
    if not all(check(row, 0) for row in range(3)):
        yield "rows that have ended go on in a round"
    yield from _rows_of_rounds(begin, asked)


def _rows_of_rounds(begin: Callable[..., Any], asked: list[Any]) -> Iterator[str]:
    """Rows are removed; the rest has its length at the end; others join when all have ended."""
    batch = begin([90, 90, 90], [10, 11, 12])
    batch.next()
    batch.filter([0, 2])
    if (batch.uids, len(batch)) != ([10, 12], 2):
        yield f"without a row there are {batch.uids}"
    batch.next()
    check = asked[-1][1]["stop_check"]
    if [check(0, 1), check(1, 1), check(0, 9)] != [False, True, True]:
        yield "a round goes on behind its end, or not before it"
    try:
        batch.extend(begin([1], [5]))
    except RuntimeError:
        pass
    else:
        yield "rows join others that draft"
    ends = []
    while len(batch):
        ends = [(one.uid, one.token, one.finish_reason, one.token_logprob) for one in batch.next()]
    if ends != [(10, None, "length", 0.0)]:
        yield f"rounds that end leave {ends}"
    other = begin([1, 3], [5, 6])
    batch.extend(other)
    got = [(one.uid, one.finish_reason) for one in batch.next()]
    if got != [(5, "length"), (6, None)] or batch.uids != [6]:
        yield f"a batch that begins anew gives {got}"
    batch.filter([])
    if len(batch) or batch.next():
        yield "without rows a batch gives more"
    positional: Any = ("model", "drafter", "kind", [], mx.array([]), [], "sampler", "stop", [])
    plain = ar.SpeculativeGenerationBatch(*positional, "hidden", {}, "prompt")
    options = plain.draft_block_size, plain.token_dtype, plain.greedy_sampling
    if options != (None, mx.int32, False):
        yield f"by default rows draft with {options}"
