"""Functions by file and line, and digests that change with what they do."""

import pytest

from conformance.core.upstream_functions import (
    Place,
    digests,
    function_at,
    line_of,
    places,
    source_text,
)

TEXT = """import os


class Cache:
    size = 1

    def extract(self, row):
        # one row
        return self.rows[row]

    @property
    def empty(self):
        def inner():
            return 0
        return inner()


if os:
    def free():
        return 1
"""


def test_each_place_of_a_text_is_found():
    where = "mlx_lm.models.nemotron-nas:f+2, mlx_vlm.generate.ar:A.f, not transformers.x:g"
    assert places(where) == (
        Place("mlx_lm.models.nemotron-nas", "f", 2),
        Place("mlx_vlm.generate.ar", "A.f"),
    )
    assert str(places(where)[0]) == "mlx_lm.models.nemotron-nas:f+2"
    assert places(where)[1].file == "mlx_vlm/generate/ar.py"


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("Cache", 4),
        ("Cache+1", 5),
        ("Cache.extract", 7),
        ("Cache.extract+1", 9),  # after a comment
        ("Cache.empty", 11),
        ("Cache.empty.inner+1", 14),
        ("Cache.empty+4", 15),
    ],
)
def test_a_place_is_a_line_of_its_function_or_class(place, line):
    (found,) = places(f"mlx_lm.x:{place}")
    assert line_of(found, TEXT) == line
    assert line_of(found, "# a comment\n\n" + TEXT) == line + 2


def test_a_function_that_is_gone_has_no_line_and_a_shorter_one_its_first():
    gone, short = Place("mlx_lm.x", "Cache.gone"), Place("mlx_lm.x", "Cache.extract", 9)
    assert line_of(gone, TEXT) is None
    assert line_of(short, TEXT) == 7


def test_a_class_is_its_lines_outside_of_its_functions():
    assert digests(TEXT.replace("rows[row]", "rows"))["Cache"] == digests(TEXT)["Cache"]
    assert digests(TEXT.replace("size = 1", "size = 2"))["Cache"] != digests(TEXT)["Cache"]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (7, "Cache.extract"),
        (9, "Cache.extract"),
        (11, "Cache.empty"),
        (14, "Cache.empty.inner"),
        (15, "Cache.empty"),
        (20, "free"),
        (5, ""),
        (1, ""),
        (99, ""),
    ],
)
def test_a_line_is_of_the_innermost_function(line, name):
    assert function_at(TEXT, line) == name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        # one row\n", ""),
        ("        # one row\n", "        # another comment\n\n"),
        ("class Cache:\n", "class Cache:\n    more = 2\n"),
        ("return 1", "return 2"),
    ],
)
def test_what_is_not_of_the_function_leaves_its_digest(old, new):
    assert digests(TEXT.replace(old, new))["Cache.extract"] == digests(TEXT)["Cache.extract"]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Cache.extract", "rows[row]", "rows[row].copy()"),
        ("Cache.empty", "@property", "@cached_property"),
        ("Cache.empty", "return 0", "return 1"),
        ("free", "return 1", "return 2"),
    ],
)
def test_what_a_function_does_changes_its_digest(name, old, new):
    assert digests(TEXT.replace(old, new))[name] != digests(TEXT)[name]


def test_a_function_that_is_defined_twice_counts_with_both():
    twice = "def f():\n    return 1\n\n\ndef f():\n    return 2\n"
    assert digests(twice)["f"] != digests(twice.replace("return 1", "return 3"))["f"]


def test_a_file_that_python_cannot_read_has_no_function():
    assert digests("def broken(:\n") == {}


def test_the_source_is_that_of_the_installed_library():
    text = source_text("mlx_lm/models/cache.py")
    assert "ArraysCache.extract" in digests(text)
    assert source_text("mlx_lm/models/no_such_file.py") is None
    assert source_text("no_such_package/x.py") is None
