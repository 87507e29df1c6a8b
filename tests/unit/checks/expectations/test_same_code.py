"""Known defects follow the upstream functions that they are about."""

import json

import pytest

from conformance.checks.expectations import load_expectations, same_code
from conformance.checks.expectations.loading import OWN
from conformance.core.errors import ExpectationError

ENTRY = next(e for e in load_expectations().defects if e.id == "arrays-cache-extract-view")
NEXT = "0.33.0.dev0"


@pytest.fixture
def followed(monkeypatch):
    """The entry, followed where a version of mlx-lm is installed, or a checkout of it."""

    def call(version, *, source="", recorded=None):
        monkeypatch.setattr(same_code, "versions_of", lambda package: versions(version, source))
        functions = same_code.functions_of(ENTRY) if recorded is None else recorded
        (entry,) = same_code.followed([ENTRY], {ENTRY.id: functions})
        return entry

    return call


CHANGED = {"mlx_lm/models/cache.py:ArraysCache.extract": "0" * 12}


def versions(version, source=""):
    return {"mlx-lm": version} | ({"mlx-lm source": source} if source else {})


def test_a_release_that_is_named_has_the_defect_whatever_its_source(followed):
    entry = followed("0.32.2", recorded=CHANGED)
    assert entry.active(versions("0.32.2"))
    assert (entry.unchanged_in, entry.changed_in) == ("", "")


def test_an_unchanged_function_has_the_defect_in_a_version_that_is_not_named(followed):
    entry = followed(NEXT)
    assert not ENTRY.active(versions(NEXT))
    assert entry.active(versions(NEXT))
    assert not entry.active(versions("0.33.0")), "only of the code that was looked at"
    assert not entry.released(versions(NEXT)), "so it need not show"


@pytest.mark.parametrize("gone", ["mlx_lm/models/cache.py:Gone.f", "mlx_lm/models/gone.py:f"])
def test_a_changed_or_missing_function_is_another_defect(followed, gone):
    assert not followed(NEXT, recorded=CHANGED).active(versions(NEXT))
    both = functions_alone() | {gone: "0" * 12}
    assert not followed(NEXT, recorded=both).active(versions(NEXT))


def functions_alone():
    """What is recorded of the entry's functions, not of whole files."""
    return {place: found for place, found in same_code.functions_of(ENTRY).items() if ":" in place}


def test_an_unchanged_file_is_not_parsed_and_a_changed_one_is(followed, monkeypatch):
    parsed, recorded = [], functions_alone()
    functions = same_code._digests_of("mlx_lm/models/cache.py")
    monkeypatch.setattr(same_code, "_digests_of", lambda file: parsed.append(file) or functions)
    whole = {"mlx_lm/models/cache.py": same_code._file_digest("mlx_lm/models/cache.py")}
    assert followed(NEXT, recorded=recorded | whole).active(versions(NEXT))
    assert not parsed
    elsewhere = {"mlx_lm/models/cache.py": "0" * 12}
    assert followed(NEXT, recorded=recorded | elsewhere).active(versions(NEXT))
    assert parsed


def test_of_a_checkout_the_source_decides_and_not_the_version(followed):
    source = "/x@abc (dirty, 123)"
    checkout = versions("0.32.2", source)
    assert followed("0.32.2", source=source).active(checkout)
    assert not followed("0.32.2", source=source).released(checkout)
    changed = followed("0.32.2", source=source, recorded=CHANGED)
    assert not changed.active(checkout)
    assert changed.active(versions("0.32.2")), "results of the release are judged as ever"


def test_an_entry_without_functions_goes_by_its_versions(followed):
    followed(NEXT)
    (entry,) = same_code.followed([ENTRY], {})
    assert not entry.active(versions(NEXT))
    assert entry.active(versions("0.32.2"))


def test_each_function_is_that_of_the_installed_release():
    """`python ci/upstream_functions.py` writes the file."""
    recorded = same_code.recorded_functions(OWN)
    entries = load_expectations().defects
    assert recorded.keys() == {entry.id for entry in entries}
    stale = [e.id for e in entries if same_code.functions_of(e) != recorded[e.id]]
    assert stale == []


def test_a_malformed_file_is_one_sentence(tmp_path):
    (tmp_path / same_code.FILE).write_text(json.dumps({"a": ["b"]}))
    with pytest.raises(ExpectationError, match=r"functions\.json: "):
        same_code.recorded_functions(tmp_path)
