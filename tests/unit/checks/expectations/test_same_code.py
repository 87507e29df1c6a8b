"""Known defects follow the upstream functions that they are about."""

import json
import re

import pytest
from msgspec.structs import replace

from conformance.checks.expectations import bound_places, load_expectations, same_code
from conformance.checks.expectations.bound_places import bound
from conformance.checks.expectations.loading import OWN
from conformance.core.errors import ExpectationError
from conformance.core.upstream_functions import Place, line_of, source_text

ENTRY = next(e for e in load_expectations().defects if e.id == "arrays-cache-extract-view")
NEXT = "0.33.0.dev0"


PLACE = "mlx_lm.models.cache:ArraysCache.extract"
(AT,) = ENTRY.functions
FILE = "mlx_lm/models/cache.py"


@pytest.fixture
def followed(monkeypatch):
    """The entry, followed where a version of mlx-lm is installed, or a checkout of it."""

    def call(version, *, source="", recorded=None):
        monkeypatch.setattr(same_code, "versions_of", lambda package: versions(version, source))
        functions = bound(ENTRY.where) if recorded is None else recorded
        (entry,) = same_code.followed([ENTRY], {ENTRY.id: functions})
        return entry

    return call


CHANGED = {AT: replace(ENTRY.functions[AT], source="0" * 12, file="0" * 12)}


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


def test_a_changed_function_is_another_defect(followed):
    assert not followed(NEXT, recorded=CHANGED).active(versions(NEXT))


def planted(monkeypatch, change):
    """The installed file changed; only what is read from now on sees it."""
    text = change(source_text(FILE))
    read = lambda file: text if file == FILE else source_text(file)  # noqa: E731
    monkeypatch.setattr(bound_places, "source_text", read)
    for cached in (bound_places._file_digest, bound_places._digests_of):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def _fresh():
    yield
    for cached in (bound_places._file_digest, bound_places._digests_of):
        cached.cache_clear()


def test_a_shifted_file_has_the_defect_on_its_new_line(followed, monkeypatch):
    """Other code moves in every release: the line is that of the function, not of the diagnosis."""
    line = ENTRY.functions[AT].line
    assert ENTRY.at == f"{FILE}:{line}"
    planted(monkeypatch, lambda text: "import os\n# a comment\n" + text)
    entry = followed(NEXT, recorded=ENTRY.functions)
    assert entry.active(versions(NEXT))
    assert entry.at == f"{FILE}:{line + 2}"


def test_comments_in_the_function_shift_its_lines_alone(followed, monkeypatch):
    line = ENTRY.functions[AT].line
    head = "    def extract(self, idx):\n"
    planted(monkeypatch, lambda text: text.replace(head, f"{head}        # a comment\n\n"))
    entry = followed(NEXT, recorded=ENTRY.functions)
    assert entry.active(versions(NEXT))
    assert entry.at == f"{FILE}:{line + 2}"


def test_a_function_that_changed_is_shown_as_such(followed, monkeypatch):
    def change(text):
        head, _, rest = text.partition("class ArraysCache")
        return f"{head}class ArraysCache{rest.replace('.extract', '.x').replace(*NEW, 1)}"

    planted(monkeypatch, change)
    entry = followed(NEXT, recorded=ENTRY.functions)
    assert not entry.active(versions(NEXT))
    first = line_of(Place("mlx_lm.models.cache", "ArraysCache.extract"), source_text(FILE))
    assert entry.at == f"{FILE}:{first} (ArraysCache.extract: its function changed here)"


NEW = ("def extract(self, idx):\n", "def extract(self, idx):\n        idx = int(idx)\n")


def test_a_function_that_is_gone_is_shown_as_such(followed, monkeypatch):
    planted(monkeypatch, lambda text: text.replace("class ArraysCache", "class StatesCache"))
    entry = followed(NEXT, recorded=ENTRY.functions)
    assert not entry.active(versions(NEXT))
    assert entry.at == f"{FILE} (ArraysCache.extract is gone here)"


def test_without_the_library_the_line_is_that_of_the_diagnosis(monkeypatch):
    monkeypatch.setattr(bound_places, "source_text", lambda file: None)
    assert ENTRY.at == f"{FILE}:{ENTRY.functions[AT].line}"


def test_an_unchanged_file_is_not_parsed_and_a_changed_one_is(followed, monkeypatch):
    parsed, functions = [], bound_places._digests_of(FILE)
    monkeypatch.setattr(bound_places, "_digests_of", lambda file: parsed.append(file) or functions)
    assert followed(NEXT, recorded=ENTRY.functions).active(versions(NEXT))
    assert not parsed
    elsewhere = {AT: replace(ENTRY.functions[AT], file="0" * 12)}
    assert followed(NEXT, recorded=elsewhere).active(versions(NEXT))
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
    stale = [e.id for e in entries if bound(e.where) != recorded[e.id]]
    assert stale == []


def test_each_place_of_an_entry_is_one_of_its_functions():
    """No entry is about a file and a line, which name another function in the next release."""
    lines = re.compile(r"mlx_(lm|vlm)/[\w/.-]+\.py:\d+")
    unbound = [e.id for e in load_expectations().defects if lines.search(e.where)]
    unbound += [e.id for e in load_expectations().defects if len(e.functions) != e.where.count(":")]
    assert unbound == []


def test_a_malformed_file_is_one_sentence(tmp_path):
    (tmp_path / same_code.FILE).write_text(json.dumps({"a": ["b"]}))
    with pytest.raises(ExpectationError, match=r"functions\.json: "):
        same_code.recorded_functions(tmp_path)
