"""The files in a folder of exported vectors, as plain data.

``manifest.json`` names every other file with its digest. For each family there are a checkpoint
folder ``model/``, one file for each scenario, and ``golden.json`` (``golden/format.py``), which
holds each distinct request once.
"""

from __future__ import annotations

import hashlib

import msgspec

from conformance.core.schedule import Schedule

FORMAT = 1
"""Version of the format of exported vectors; a manifest with another number is refused."""

MANIFEST = "manifest.json"
GOLDEN = "golden.json"
MODEL = "model"


class LeftOut(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is not exported, and why: a scenario, one of its schedules, or one request of that."""

    scenario: str
    reason: str
    schedule: str = ""
    request: str = ""


class FamilyVectors(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What there is of one family.

    Attributes:
        vocab_size: number of token ids.
        scenarios: names of those exported, in the order of the ladder.
        left_out: what of the chosen scenarios is not there.
        files: SHA-256 of each file by its path below the folder of vectors.
    """

    vocab_size: int
    scenarios: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    files: dict[str, str]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that was exported.

    Attributes:
        format: see ``FORMAT``.
        library: whose single streams the goldens are, and whose format the checkpoints have.
        engine: for whose capabilities the scenarios made their schedules.
        dtype: of weights and goldens; a trace of another dtype has other noise and is refused.
        seed: of the weights and the prompts.
        versions: of the library and of what its numbers depend on.
        device: that the goldens were made on.
        families: by name.
        families_left_out: families that were chosen and are not there, with the reason.
        digest: SHA-256 over all of the above.
    """

    format: int
    library: str
    engine: str
    dtype: str
    seed: int
    versions: dict[str, str]
    device: str
    families: dict[str, FamilyVectors]
    families_left_out: dict[str, str]
    digest: str


class Exported(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule, and for each of its requests the id that its golden has in ``golden.json``."""

    schedule: Schedule
    golden: dict[str, str]


class ScenarioFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One scenario of one family. ``summary`` says which ingredient it adds."""

    scenario: str
    summary: str
    schedules: tuple[Exported, ...]


def sealed(manifest: Manifest) -> Manifest:
    """The manifest with its digest filled in."""
    return msgspec.structs.replace(manifest, digest=digest_of(manifest))


def digest_of(manifest: Manifest) -> str:
    """SHA-256 over the manifest without its digest."""
    plain = msgspec.structs.replace(manifest, digest="")
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest()
