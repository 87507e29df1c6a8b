"""Stop sequences: matches across requests, or not across a join."""

from __future__ import annotations

from functools import partial
from typing import Any

from conformance.backend.shared_faults import OUTPUT, kept_by_place
from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, Right, after, wrap
from conformance.power.faults.mlx_lm.tools import generate, mlx_lm_fault

_BATCH = generate.GenerationBatch
_EDGES = ("stop_sequences/edges",)
_fault = partial(
    mlx_lm_fault,
    fault_class="stop sequences",
    source="issue trackers: stop sequences of a reused slot",
    kills=("stop_sequences",),
    where=OUTPUT,
)


@_fault("F14.match-goes-on-in-another-request")
def match_goes_on_in_another_request(hits: Hits) -> Patch:
    """When a row leaves, the next one goes on with what it had matched."""
    return kept_by_place(_BATCH, "_matchers", hits)


@_fault("F14.match-begins-anew-at-a-join")
def match_begins_anew_at_a_join(hits: Hits) -> Patch:
    """When a request joins, all rows forget what they had matched so far."""

    def forget(_: None, self: Any, __: Any) -> None:
        hits.hit_if(any(matcher._node is not matcher._root for matcher in self._matchers))
        self._matchers = [stop.matcher() for stop in self.stop_sequences]

    return after(_BATCH, "extend", forget)


_edge = partial(_fault, source="no report: StopSequences guards against it", kills=_EDGES)


@_edge("G6.empty-sequence-matches")
def empty_sequence_matches(hits: Hits) -> Patch:
    """An empty sequence matches wherever no other one has begun."""

    def trie(right: Right, sequences: Any) -> Any:
        made = right(sequences)
        if any(not len(sequence) for sequence in sequences):
            hits.hit()
            made["__match__"] = ((), 0)
        return made

    return wrap(generate, "_build_trie", trie)


@_edge("G6.first-token-ends-nothing")
def first_token_ends_nothing(hits: Hits) -> Patch:
    """A sequence that is complete with a request's first token does not end it."""

    def advance(right: Right, self: Any, token: int) -> bool:
        first = not hasattr(self, "_moved")
        self._moved = True
        matched = bool(right(self, token))
        hits.hit_if(first and matched)
        return matched and not first

    return wrap(generate.StopSequences.Matcher, "advance", advance)


@_edge("G6.begun-in-the-prompt")
def begun_in_the_prompt(hits: Hits) -> Patch:
    """The prompt's last token counts as part of a sequence."""

    def begin(_: None, self: Any, *args: Any, **options: Any) -> None:
        inputs = options["inputs"] if "inputs" in options else args[2]
        for matcher, token in zip(self._matchers, inputs.tolist(), strict=True):
            matcher.advance(token)
            hits.hit_if(matcher._node is not matcher._root)

    return after(_BATCH, "__init__", begin)


@_edge("G6.begun-at-the-limit")
def begun_at_the_limit(hits: Hits) -> Patch:
    """A request that reaches its limit in the middle of a sequence is reported as stopped."""

    def begun(right: Right, self: Any) -> Any:
        matchers = dict(zip(self.uids, self._matchers, strict=True))
        responses = right(self)
        for response in responses:
            matcher = matchers[response.uid]
            if response.finish_reason == "length" and matcher._node is not matcher._root:
                hits.hit()
                response.finish_reason = "stop"
        return responses

    return wrap(_BATCH, "next", begun)
