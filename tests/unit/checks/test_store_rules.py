"""A store of kept sequences that breaks its rules, or counts wrongly."""

import dataclasses

import pytest
from miniatures.plays import Script

from conformance.checks.store_rules import check_stored
from conformance.core.pooled import KeptSequence, StoreCall, Stored
from conformance.core.verdict import Verdict

A, B, C = (1, 2, 3), (4, 5, 6), (7, 8)


def after(call, *kept, tokens=(), **more):
    """A call, and what is kept afterwards: pairs of a kind and tokens, of 10 bytes a token."""
    sequences = tuple(KeptSequence(k, t, 10 * len(t), 10 * len(t)) for k, t in kept)
    counted = {
        kind: (
            sum(one.kind == kind for one in sequences),
            sum(one.counted for one in sequences if one.kind == kind),
        )
        for kind in ("assistant", "user", "system")
    }
    return Stored(call, tuple(tokens), kept=sequences, counted=counted, **more)


def insert(tokens, *kept, kind="assistant", cut=True, most=2):
    return after(StoreCall.INSERT, *kept, tokens=tokens, kind=kind, cut=cut, most=most)


def fetch(tokens, found, *kept):
    return after(StoreCall.FETCH, *kept, tokens=tokens, found=found)


def findings(*calls):
    script = Script()
    script.free.moments[1].stored = calls[:1]
    script.free.moments[2].stored = calls[1:]
    return [(found.verdict, found.expected, found.got) for found in check_stored(script.play())]


ANSWER_A, ANSWER_B, ANSWER_C = (("assistant", tokens) for tokens in (A, B, C))
SYSTEM_A, USER_B = ("system", A), ("user", B)


@pytest.mark.parametrize(
    "calls",
    [
        [insert(A, ANSWER_A), insert(B, ANSWER_A, ANSWER_B), insert(C, ANSWER_B, ANSWER_C)],
        # A sequence kept anew is the newest.
        [
            insert(A, ANSWER_A),
            insert(B, ANSWER_A, ANSWER_B),
            insert(A, ANSWER_B, ANSWER_A),
            insert(C, ANSWER_A, ANSWER_C),
        ],
        # Where caches can be cut a sequence takes the place of its prefixes, else not.
        [insert(A, ANSWER_A), insert((*A, 9), ("assistant", (*A, 9)))],
        [
            insert(A, ANSWER_A, cut=False),
            insert((*A, 9), ANSWER_A, ("assistant", (*A, 9)), cut=False),
        ],
        # The least valuable kind goes first.
        [
            insert(A, SYSTEM_A, kind="system"),
            insert(B, USER_B, SYSTEM_A, kind="user"),
            insert(C, ANSWER_C, USER_B, SYSTEM_A, most=3),
            insert((5,), ("assistant", (5,)), USER_B, SYSTEM_A, most=3),
        ],
        [
            insert(A, ANSWER_A),
            insert(B, ANSWER_A, ANSWER_B),
            after(StoreCall.BOUND, ANSWER_B, most=59),
        ],
        [insert(A, ANSWER_A), after(StoreCall.BOUND, ANSWER_A, most=30)],
        # All but the last token of a prompt, where caches can be cut; else whole sequences.
        [insert(A, ANSWER_A), fetch(A, 2, ANSWER_A)],
        [insert(A, ANSWER_A), fetch((1, 2, 9, 9), 2, ANSWER_A)],
        [insert(A, ANSWER_A, cut=False), fetch((*A, 9), 3, ANSWER_A)],
        [insert(A, ANSWER_A, cut=False), fetch((1, 2, 9, 9), 0, ANSWER_A)],
    ],
)
def test_the_rules_are_kept(calls):
    assert findings(*calls) == []


@pytest.mark.parametrize(
    ("calls", "expected", "got"),
    [
        (
            [insert(A, ANSWER_A), insert(B, ANSWER_B, most=2)],
            "assistant of 3, assistant of 3",
            "assistant of 3",
        ),
        (
            [insert(A, ANSWER_A), insert(C, ANSWER_A, ANSWER_C, most=1)],
            "assistant of 2",
            "assistant of 3, assistant of 2",
        ),
        ([insert(A, ANSWER_A), fetch((*A, 9), 2, ANSWER_A)], "3 tokens", "2 tokens"),
        ([insert(A, ANSWER_A), fetch((*A, 9), 0, ANSWER_A)], "3 tokens", "0 tokens"),
        (
            [insert(A, ANSWER_A), after(StoreCall.BOUND, ANSWER_A, most=29)],
            "none",
            "assistant of 3",
        ),
    ],
)
def test_a_rule_that_is_broken(calls, expected, got):
    assert findings(*calls) == [(Verdict.PROTOCOL, expected, got)]


def test_bytes_that_are_miscounted():
    (right,) = (insert(A, ANSWER_A),)
    wrong = dataclasses.replace(right.kept[0], counted=20)
    of_sequence = dataclasses.replace(
        right, kept=(wrong,), counted={"assistant": (1, 20), "user": (0, 0), "system": (0, 0)}
    )
    assert findings(of_sequence) == [(Verdict.LEAK, "30 bytes", "20 bytes")]
    of_kind = dataclasses.replace(right, counted=dict(right.counted, assistant=(1, 60)))
    assert findings(of_kind) == [(Verdict.LEAK, "1 sequences, 30 bytes", "1 sequences, 60 bytes")]


def test_a_run_without_a_store():
    assert check_stored(Script().play()) == []
