"""Sessions of the toy library, with the engines and families of a test."""

from conformance.checks.expectations import Defect
from conformance.core.family import Facts, Family
from conformance.core.faults.patching import replace, together
from conformance.core.mends import mend
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.scenarios import LADDER
from miniatures.library import ToyLibrary
from miniatures.model import VOCAB
from miniatures.right import ContinuousBatching
from miniatures.wrong import AttendsToPadding


def toy_family(name="calm", **facts):
    return Family(name, Facts(library="toy", **facts), {"vocab_size": VOCAB})


def toy_registry(engines, *, library=None, families=None, scenarios=LADDER, mends=()):
    """A registry of the toy library alone.

    ``engines`` are classes by the name that each is to have, ``families`` by default ``calm``.
    """
    return Registry(
        libraries={"toy": library or ToyLibrary()},
        families={("toy", one.name): one for one in families or (toy_family(),)},
        engines={n: type(kind.__name__, (kind,), {"name": n}) for n, kind in engines.items()},
        scenarios={scenario.name: scenario for scenario in scenarios},
        faults={},
        plugins=(),
        mends={one.key: one for one in mends},
    )


def toy_session(engines, *, options=None, **more):
    """A session of ``toy_registry``."""
    return Session(toy_registry(engines, **more), **(options or {}))


@mend("padding-attended")
def padding_is_masked(hits):
    """No padding is fed."""

    def feed(self, row, piece, *, padding):
        hits.hit_if(padding)
        right(self, row, piece, padding=padding)

    right = ContinuousBatching.feed
    return together(
        replace(AttendsToPadding, "feed", feed),
        replace(AttendsToPadding, "offsets", ContinuousBatching.offsets),
    )


def entry_of_wrong(name, **more):
    """An entry about the engine ``wrong`` in the family ``calm``."""
    fields = {
        "id": name,
        "engines": ("wrong",),
        "families": ("calm",),
        "package": "toy",
        "versions": ">=1",
        "where": "wrong.py:1",
        "why": "it is",
    }
    return Defect(**(fields | more))
