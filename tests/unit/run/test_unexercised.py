"""What an engine declares and nothing has used is named, where the whole ladder was selected."""

import pytest
from miniatures.library import family
from miniatures.right import ContinuousBatching
from miniatures.sessions import toy_registry

from conformance.core.engine import Capability
from conformance.run.selection import Selection, cases
from conformance.run.session import Session
from conformance.run.unexercised import undeclared, unexercised
from conformance.scenarios import LADDER


def registry(capabilities, *scenarios):
    engine = type("Engine", (ContinuousBatching,), {"capabilities": frozenset(capabilities)})
    chosen = [s for s in LADDER if not scenarios or s.name in scenarios]
    return toy_registry({"mine": engine}, families=[family()], scenarios=chosen)


def said(found, **selected):
    selection = Selection(("mine",), **selected)
    session = Session(found)
    results = [session.run(case) for case in cases(found, selection)]
    return unexercised(found, selection, results)


DECLARED = (Capability.TOGETHER, Capability.CANCEL, Capability.STOP)


def test_a_capability_that_no_schedule_asks_for_is_named():
    (sentence,) = said(registry(DECLARED, "ragged", "cancelled"))
    assert sentence == ("mine: unproven, as no schedule used it: stop")


def test_all_that_the_ladder_uses_is_not():
    assert said(registry(DECLARED[:2], "ragged", "cancelled")) == ()


def test_cancelling_alone_is_used():
    assert said(registry({Capability.CANCEL}, "cancelled")) == ()


@pytest.mark.parametrize("scenarios", [("ragged",), ("rag*",)])
def test_of_single_scenarios_nothing_is_said(scenarios):
    assert said(registry(DECLARED), scenarios=scenarios) == ()


def test_nothing_is_said_of_media_where_no_family_has_any():
    given = registry({Capability.CANCEL, Capability.MEDIA}, "cancelled")
    assert "media" in said(given)[0]
    ((key, toy),) = given.families.items()
    given.families[key] = type(toy)("toy", type(toy.facts)(library="toy"), toy.config)
    assert said(given) == ()


def test_a_method_of_an_undeclared_capability_is_named_because_nothing_calls_it():
    own = {"extract": lambda self, name: None, "probe": lambda self, kind: None}
    mine = type("Mine", (ContinuousBatching,), {**own, "capabilities": frozenset()})
    (sentence,) = undeclared(mine)
    assert sentence.endswith(
        " has extract(), probe() and does not declare prefix, probes: nothing calls that"
    )
    heir = type("Heir", (mine,), {"capabilities": frozenset({Capability.PREFIX})})
    assert undeclared(heir) == (), "what another class wrote"
