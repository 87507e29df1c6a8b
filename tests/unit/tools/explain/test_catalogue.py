"""Which class of defects a failure is like."""

import contextlib

from conformance.core.faults import Fault
from conformance.core.verdict import Verdict
from conformance.report.explanation import Where
from conformance.tools.explain.catalogue import fits, relatives, sited

ROPE = Where("module:layers.0.rope:RoPE")
CACHE = Where("cache:0:BatchKVCache:offset")


def fault(name, fault_class, where="", **more):
    """A defect that does nothing."""
    given = {"needs": (), "kills": ("ragged",), "source": f"issue of {name}", **more}
    return Fault(
        name,
        fault_class,
        summary="",
        engine="e",
        inject=lambda _: contextlib.nullcontext(),
        where=where,
        **given,
    )


def classes(faults, *, scenario="ragged", verdict=Verdict.DRIFT, where=ROPE, entry=None):
    """The classes that are named, the likeliest first."""
    found = relatives(
        faults, {"rope:RoPE"}, scenario=scenario, verdict=verdict, where=where, entry=entry
    )
    return [relative.fault_class for relative in found]


def test_a_place_is_one_of_several_globs():
    assert sited(fault("f", "c", "module:*RoPE|cache:*"), CACHE)
    assert not sited(fault("f", "c", "module:*Attention"), ROPE)
    assert not sited(fault("f", "c"), ROPE)
    assert not sited(fault("f", "c", "*"), None)


def test_a_glob_of_all_places_of_a_kind_fits_none():
    assert fits(fault("f", "c", "cache:*|cache:*:offset"), CACHE)
    assert fits(fault("f", "c", "cache:*Batch*Cache:*"), CACHE)
    for wide in ("cache:*", "*", "cache:*:keys", ""):
        assert not fits(fault("f", "c", wide), CACHE), wide
    assert not fits(fault("f", "c", "cache:*:offset"), None)


def test_the_place_counts_more_than_the_scenario():
    faults = [fault("a", "by scenario"), fault("b", "by place", "module:*RoPE", kills=("window",))]
    assert classes(faults) == ["by place", "by scenario"]


def test_the_first_cache_entry_counts_where_the_place_is_another():
    faults = [fault("a", "other"), fault("b", "the entry", "cache:*:offset")]
    assert classes(faults, entry=CACHE) == ["the entry", "other"]
    assert classes(faults) == ["other", "the entry"]  # equal scores: by name


def test_what_cannot_show_in_the_family_is_not_named():
    assert classes([fault("a", "c", "module:*RoPE", needs=("window",))]) == []


def test_a_crash_is_like_crashes_only():
    crash = fault("a", "crash", crash=True)
    silent = fault("b", "silent")
    assert classes([crash, silent]) == ["silent"]
    assert classes([crash, silent], verdict=Verdict.CRASH) == ["crash"]


def test_relatives_are_those_of_the_class_that_are_most_alike():
    faults = [fault("near", "c", "module:*RoPE"), fault("far", "c")]
    (found,) = relatives(
        faults, {"rope:RoPE"}, scenario="ragged", verdict=Verdict.DRIFT, where=ROPE, entry=None
    )
    assert (found.faults, found.sources) == (("e/near",), ("issue of near",))
