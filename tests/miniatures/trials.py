"""Faults tried one by one on the real libraries, and what they leave behind there."""

import collections
import functools
import importlib
import itertools
import re
import sys

import mlx.core as mx
import pytest
from shared_oracles import shared_store

from conformance.core.faults import Fault, Hits
from conformance.core.faults.traits import traits
from conformance.core.verdict import CaseId
from conformance.power.mutation.killing import killed
from conformance.power.mutation.kills import read_kills
from conformance.power.mutation.power import enough
from conformance.run.judging.judge import brief_for
from conformance.run.session import Session

kills = functools.cache(read_kills)


class Trials:
    """Runs of one engine with and without faults; models and right runs are made once.

    ``families`` come in the order in which they are taken for a fault. Schedules whose names begin
    with ``left_out`` are not in the registry's scenarios.
    """

    def __init__(self, engine, registry, families, left_out=re.compile("(?!)")):
        self.engine = engine
        self._left_out = left_out
        self.registry = registry
        self._families = families
        store = shared_store()
        self._session = functools.cache(lambda family: Session(registry, store=store))
        self.right = functools.cache(self._right)
        self._traits = functools.cache(self._traits_of)

    def wrong(self, family, scenario, inject, until=None, only=()):
        """The result with the fault in place, and how often it took effect."""
        hits = Hits()
        case = self._case(family, scenario)
        result = self._session(family).run(
            case, around=lambda _: inject(hits), until=until, only=only
        )
        return result, hits.count

    def played(self, family, scenario, only):
        """The result of some schedules, without a fault."""
        return self._session(family).run(self._case(family, scenario), only=only)

    def tried(self, fault):
        """The first scenario that the fault names, without it and with it until it is caught.

        The schedule that is known to catch the fault is played first, then one after the other
        that may, so that no more is played without the fault than with it. The whole scenario is
        played only if none of them catches it alone.
        """
        family, scenario = self.family_for(fault), fault.scenarios[0]
        known = self._known(fault, scenario)
        each = ((name,) for name in self._names(family, scenario) if fault.may_show(scenario, name))
        for only in itertools.chain(known, each, [()]):
            before = self.right(family, scenario, only)
            until = functools.partial(enough, fault, before)
            after, hits = self.wrong(family, scenario, fault.inject, until, only)
            if killed(fault, before, after):
                break
        return before, after, hits

    def _known(self, fault, scenario):
        """The schedule that caught the fault in most families of the tiers, if one did."""
        library = self.registry.engines[self.engine].library
        caught = collections.Counter(
            place.schedule
            for name in kills().caught
            if name.startswith(f"{library}/")
            for place in kills().of(name).get(fault.name, ())
            if place.scenario == scenario and not self._left_out.match(place.schedule)
        )
        return [(max(sorted(caught), key=caught.get),)] if caught else []

    def _names(self, family, scenario):
        """The names of the scenario's schedules, made only when they are asked for."""
        subject = self._session(family).subject(self._case(family, scenario))
        brief = brief_for(subject, self.registry.engines[self.engine], 0)
        for schedule in self.registry.scenarios[scenario].make(brief):
            yield schedule.name

    def family_for(self, fault):
        """The first family in which the fault can show."""
        return next(f for f in self._families if not fault.lacks(self._traits(f)))

    def _right(self, family, scenario, only=()):
        return self._session(family).run(self._case(family, scenario), only=only)

    def _traits_of(self, family):
        return traits(self._session(family).subject(self._case(family, "ragged")))

    def _case(self, family, scenario):
        return CaseId(self.engine, family, scenario, "float32", 0)


def by_class(faults, long):
    """A parameter for each fault; by day one of each class, and none of those that take long."""
    day = {}
    for fault in faults:
        if fault.name not in long:
            day.setdefault(fault.fault_class, fault)
    return [
        pytest.param(f, id=f.name, marks=[pytest.mark.nightly] * (day.get(f.fault_class) is not f))
        for f in faults
    ]


def traces(faults, package, modules):
    """For each fault the attributes that are not as they were before it, and while it was in.

    ``package`` is the library's; of its ``modules`` some may be imported only by a fault.
    """
    for name in modules:
        importlib.import_module(f"{package}.{name}")
    for fault in faults:
        with fault.inject(Hits()):
            pass  # what it needs of the library is imported
    before = _held(package)
    for fault in faults:
        inside = set()
        try:
            with fault.inject(Hits()):
                inside = _changes(before, _held(package))
                raise KeyError(fault.name)
        except KeyError:
            yield fault, inside, _changes(before, _held(package))


def _held(package):
    """What every class and module of the library holds, and the modules of mlx."""
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] == package]
    owners = [mx, mx.fast, *modules]
    kinds = [kind for m in modules for kind in vars(m).values() if isinstance(kind, type)]
    owners += kinds
    owners += [kind for outer in kinds for kind in vars(outer).values() if isinstance(kind, type)]
    return {id(owner): (owner, dict(vars(owner))) for owner in owners}


def _changes(before, after):
    """Names of attributes that are not the same object any more."""
    return {
        f"{owner}.{name}"
        for key, (owner, held) in after.items()
        if key in before  # a fault may put a class of its own in the place of another
        for name in {*held, *before[key][1]}
        if held.get(name, Fault) is not before[key][1].get(name, Fault)
    }
