"""What differs between two goldens, in the words of a review."""

import pytest
from miniatures.goldens import golden, recorded

from conformance.core.schedule import Request
from conformance.tools.golden.changes import Kind, all_new, changes_between

OLD = golden(recorded())


def top(*values):
    return tuple(((3, -0.5 + v), (7, -1.0), (8, -2.0)) for v in values)


def kinds(old, new):
    return [change.kind for change in changes_between(old, new).requests]


@pytest.mark.parametrize("rounded", [(0, 0), (1e-6, 2e-6)])
def test_the_same_up_to_rounding_is_kept(rounded):
    old, new = golden(recorded(top=top(0, 0))), golden(recorded(top=top(*rounded)))
    found = changes_between(old, new)
    assert (found.kind, found.keep, found.causes) == (Kind.UNCHANGED, True, ())


def test_logprobs_that_moved_are_reported_with_how_far():
    old, new = golden(recorded(top=top(0, 0))), golden(recorded(top=top(0, 1e-3)))
    (change,) = changes_between(old, new).requests
    assert (change.kind, change.text) == (Kind.MOVED, "step 1: 0.001 nats, 1e+03 times the noise")


def test_another_token_far_above_noise_is_reported_with_its_margin():
    new = golden(recorded(tokens=(3, 7), margins=(0.5, 0.25), top=OLD.requests[0].top))
    (change,) = changes_between(OLD, new).requests
    assert change.kind is Kind.TOKENS
    assert change.text == "step 1: token 4 -> 7, margin 0.25 nats, 2.5e+05 times the noise"


def test_another_token_within_noise_is_reported_as_such():
    old = golden(recorded(margins=(0.5, 2e-6)))
    new = golden(recorded(tokens=(3, 7), margins=(0.5, 2e-6), top=old.requests[0].top))
    found = changes_between(old, new)
    assert (found.kind, found.keep) == (Kind.NOISE, False)


def test_a_near_token_does_not_excuse_numbers_that_moved():
    old = golden(recorded(margins=(0.5, 2e-6), top=top(0, 0)))
    new = golden(recorded(tokens=(3, 7), margins=(0.5, 2e-6), top=top(1e-3, 0)))
    assert kinds(old, new) == [Kind.TOKENS]


def test_fewer_tokens_are_a_change():
    line = recorded()
    short = recorded(tokens=(3,), margins=(0.5,), noise=(1e-6,), top=line.top[:1])
    short = type(short)(line.request, *[getattr(short, f) for f in short.__struct_fields__[1:]])
    (change,) = changes_between(OLD, golden(short)).requests
    assert (change.kind, change.text) == (Kind.TOKENS, "2 -> 1 tokens")


def test_another_prompt_cannot_be_compared():
    line = recorded()
    other = type(line)(
        Request("short", (1, 2, 3), 2), line.tokens, line.margins, line.noise, line.top
    )
    (change,) = changes_between(OLD, golden(other)).requests
    assert (change.kind, change.text) == (Kind.REQUEST, "another prompt (2 -> 3 tokens)")


def test_requests_come_and_go():
    assert kinds(OLD, golden(recorded(name="long"))) == [Kind.NEW, Kind.GONE]
    assert all_new(OLD).kind is Kind.NEW


@pytest.mark.parametrize("field", ["recipe", "weights", "oracle"])
def test_a_changed_cause_rewrites_a_golden(field):
    found = changes_between(OLD, golden(recorded(), **{field: "c" * 64}))
    assert found.kind is Kind.UNCHANGED
    assert not found.keep
    assert found.causes[0].startswith(field)


@pytest.mark.parametrize("changed", [{"device": "slide rule"}, {"versions": {"toy": "2"}}])
def test_another_machine_or_release_alone_rewrites_nothing(changed):
    found = changes_between(OLD, golden(recorded(), **changed))
    assert found.keep
    assert len(found.causes) == 1
