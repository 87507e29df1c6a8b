"""A name of a library that is gone makes only what uses it unsupported, and is named in full."""

import mlx_lm.models.cache as library
import pytest

from conformance.core import missing_names as module
from conformance.core.errors import Unsupported
from conformance.core.failures import failure_of
from conformance.core.faults.patching import wrap
from conformance.core.missing_names import missing_name, missing_names
from conformance.core.verdict import Finding, Verdict


def ours(code, **names):
    """The error of this code, run as if it were in a file of this project."""
    with pytest.raises((AttributeError, ImportError)) as caught:
        exec(compile(code, f"{module._OWN}/plugins/planted.py", "exec"), names)
    return caught.value


class Public(library.KVCache):
    """A class of ours, which is no library's."""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("cache._hash", "mlx_lm.models.cache._hash"),
        ("cache.hash_of", "mlx_lm.models.cache.hash_of"),
        ("cache.KVCache()._rows", "mlx_lm.models.cache.KVCache._rows"),
        ("cache.KVCache._rows", "mlx_lm.models.cache.KVCache._rows"),
        ("from mlx_lm.models.cache import _hash", "mlx_lm.models.cache._hash"),
        ("cache.KVCache().rows", ""),
        ("cache.KVCache().__rows__", ""),
        ("own()._rows", ""),
        ("cache.KVCache().is_trimmable._x", ""),
        ("import mlx_lm.models.no_such", ""),
    ],
)
def test_a_missing_name_is_named_where_it_was_used(code, said):
    found = missing_name(ours(code, cache=library, own=Public))
    assert str(found or "") == (f"unsupported here: {said}" if said else "")


def test_a_library_without_a_name_of_its_own_is_broken():
    with pytest.raises(AttributeError) as caught:
        library.KVCache()._rows  # noqa: B018 - the frame is not of the project
    assert missing_name(caught.value) is None
    assert not failure_of(caught.value, "decoding").unsupported


def test_what_uses_it_is_unsupported():
    failure = failure_of(ours("cache._hash", cache=library), "counting", theirs=True)
    assert failure.unsupported
    assert failure.message == "unsupported here: mlx_lm.models.cache._hash"


def test_a_patch_of_a_missing_function_names_it():
    with (
        pytest.raises(Unsupported, match=r"^unsupported here: mlx_lm.models.cache.KVCache._x$"),
        wrap(library.KVCache, "_x", print),
    ):
        pass


def test_each_name_is_listed_once():
    said = "unsupported here: mlx_vlm.apc._x"
    text = f"raised Unsupported: llama: {said} [a.py:1, in step 0]"
    findings = [Finding(Verdict.UNSUPPORTED, "failure", text, got=text), Finding("exact", "x", "y")]
    assert missing_names(findings) == (said,)
