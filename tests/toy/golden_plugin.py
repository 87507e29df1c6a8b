"""A plugin of the NumPy miniatures: a model, a single stream and engines to make goldens of.

``TOY_SCALES`` gives families other weights (``calm=1.5,large=2``; ``*`` is all),
``TOY_INSENSITIVE`` and ``TOY_DEADLY`` name one that the gate must refuse, and one that kills its
process.
"""

import os
import signal
import sys
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from miniatures.goldens import Scaled, SensitiveLibrary
from miniatures.library import family
from miniatures.right import ContinuousBatching
from miniatures.wrong import AttendsToPadding

from conformance.core.family import Recipe
from conformance.run.hookspecs import hookimpl
from conformance.scenarios.batch import RAGGED
from conformance.tools.golden.staging import accept, propose

COUNT = int(os.environ.get("TOY_COUNT", "0"))
NAMES = [f"f{n}" for n in range(COUNT)] or os.environ.get("TOY_FAMILIES", "calm large").split()
SCALES = dict(pair.split("=") for pair in os.environ.get("TOY_SCALES", "").split(",") if pair)


def scale(name, scales):
    return float(scales.get(name, scales.get("*", "1")))


def families(scales):
    """Another scale is another recipe, as in a family file that somebody edited."""
    plain = family()
    found = []
    for name in NAMES:
        recipe = Recipe(logit_scale=scale(name, scales))
        facts = msgspec.structs.replace(plain.facts, weights=recipe)
        if os.environ.get("TOY_SAME_RECIPE"):
            facts = plain.facts
        found.append(msgspec.structs.replace(plain, name=name, facts=facts))
    return found


class Goldens(SensitiveLibrary):
    scales = SCALES

    def load(self, family, *, dtype, seed):
        if family.name == os.environ.get("TOY_DEADLY"):
            os.kill(os.getpid(), signal.SIGKILL)
        return Scaled(scale(family.name, self.scales))

    def fingerprint(self, model):
        return type(self)._hash(model.scale)

    @staticmethod
    def _hash(scale):
        return f"{float(scale):064.3f}".replace(".", "a")

    def sensitivity(self, family, *, dtype, seed):
        found = super().sensitivity(family, dtype=dtype, seed=seed)
        insensitive = family.name == os.environ.get("TOY_INSENSITIVE")
        return type(found)(**{**vars(found), "signals": ()}) if insensitive else found


class Right(ContinuousBatching):
    name = "toy"


class Padded(AttendsToPadding):
    name = "padded"


@hookimpl
def conformance_libraries():
    return [Goldens()]


@hookimpl
def conformance_families():
    return families(SCALES)


@hookimpl
def conformance_engines():
    return [Right, Padded]


@hookimpl
def conformance_scenarios():
    return [RAGGED]


@hookimpl
def conformance_faults():
    return []


def make_goldens(root, scales=SCALES):
    """The goldens of all families, without a process of their own."""
    library = Goldens()
    library.scales = scales
    pairs = [(library, one) for one in families(scales)]
    return accept([propose(pair, root=root, expectations=None) for pair in pairs])


def contents(folder):
    """The bytes of each file in a folder of goldens, by the file's name."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
