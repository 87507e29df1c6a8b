"""Batch caches are found by their verbs; one without a test is reported."""

import types

import pytest

from conformance.power.caches import discovery
from conformance.power.caches.discovery import discover, is_batch_cache


def test_each_installed_batch_cache_has_a_kind():
    found = discover()
    assert len(found) >= 17
    assert [one.name for one in found if not one.covered] == []


def test_a_class_that_nobody_tests_has_no_kind(monkeypatch):
    class NovelCache:
        filter = extend = lambda self, _: None

    module = types.ModuleType("mlx_lm.models.cache")
    NovelCache.__module__ = module.__name__
    module.NovelCache = NovelCache
    monkeypatch.setattr(discovery.importlib, "import_module", lambda _: module)
    (found,) = discover(["mlx_lm.models.cache"])
    assert (found.name, found.kinds, found.covered) == ("mlx_lm.NovelCache", (), False)


@pytest.mark.parametrize(
    ("verbs", "wanted"),
    [
        ("filter extend", True),
        ("update_and_fetch merge", True),
        ("update_and_fetch extract", True),
        ("update_and_fetch trim", False),
        ("filter", False),
        ("merge", False),
    ],
)
def test_verbs_make_a_batch_cache(verbs, wanted):
    cls = type("Cache", (), dict.fromkeys(verbs.split(), lambda self: None))
    assert is_batch_cache(cls) is wanted


def test_a_library_that_is_not_there_has_none():
    assert discover(["no_such_library.cache"]) == []
