"""An entry's traits say which families its cause concerns, and it names each that is known.

By default the first family that each entry names, and the first that it excepts; of all families
with ``CONFORMANCE_QUALITY=all``, which takes minutes.
"""

import os
from fnmatch import fnmatchcase
from types import SimpleNamespace

import pytest

from conformance.checks.expectations import load_expectations
from conformance.checks.expectations.entries import has, matches
from conformance.core.faults.traits import code_traits
from conformance.run.registry import build_registry

ALL = os.environ.get("CONFORMANCE_QUALITY") == "all"
# Their models run on Metal alone, or fail at every prompt of two tokens.
UNKNOWN = {"bitnet", "muse_spark", "olmo"}


def unsound(entries, traits):
    """Sentences about entries that miss a family, or name one that their traits are not about.

    Args:
        entries: those with traits.
        traits: of each family, by library and name.
    """
    for entry in entries:
        for (library, family), found in traits.items():
            if library_of(entry) != library:
                continue
            named = matches(family, entry.families)
            concerned = any(has(found, trait) for trait in entry.traits)
            if named and not concerned:
                yield f"{entry.id}: {family} is named and has no trait of it"
            if concerned and not named and not matches(family, entry.except_families):
                yield f"{entry.id}: {family} has a trait of it and is not named"


def library_of(entry):
    """The reference engines play the families of mlx-lm."""
    return entry.package.replace("-", "_")


@pytest.fixture(scope="module")
def registry():
    return build_registry()


def chosen(entries, registry):
    families = {key for key in registry.families if key[1] not in UNKNOWN}
    if ALL:
        return families
    some = set()
    for entry in entries:
        for globs in (entry.families, entry.except_families):
            here = [k for k in sorted(families) if k[0] == library_of(entry)]
            some.update([k for k in here if any(fnmatchcase(k[1], g) for g in globs)][:1])
    return some


def traits_of(registry, key):
    library, family = registry.libraries[key[0]], registry.families[key]
    model = library.load(family, dtype="float32", seed=0)
    return code_traits(SimpleNamespace(family=family, library=library, model=model))


@pytest.mark.nightly
def test_each_family_with_a_trait_is_named(registry):
    entries = [entry for entry in load_expectations().defects if entry.traits]
    known = {key: traits_of(registry, key) for key in sorted(chosen(entries, registry))}
    assert list(unsound(entries, known)) == []


def test_an_unsound_entry_is_found(registry):
    entries = [
        entry for entry in load_expectations().defects if entry.id == "cache-list-last-layer"
    ]
    key = ("mlx_vlm", "falcon_h1")
    assert list(unsound(entries, {key: {"last:CacheList"}})) == []
    assert len(list(unsound(entries, {key: {"last:KVCache"}}))) == 1
    assert len(list(unsound(entries, {("mlx_vlm", "newcomer"): {"last:CacheList"}}))) == 1
