"""A user's file that is nearly right ends in a sentence about it, whatever is wrong.

``python ci/fuzz.py --examples 10000`` tries each reader with more.
"""

import os

import pytest
from fuzzed_readers import FUZZED, files
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("CONFORMANCE_FUZZ_EXAMPLES", "25"))


@pytest.mark.parametrize("fuzzed", FUZZED, ids=lambda fuzzed: fuzzed.name)
def test_no_file_makes_a_reader_fail_otherwise_than_by_its_sentence(fuzzed, tmp_path):
    fuzzed.beside(tmp_path)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data):
        content = data.draw(files(fuzzed))
        assert fuzzed.problem(tmp_path, content) == ""

    check()


@pytest.mark.parametrize("fuzzed", FUZZED, ids=lambda fuzzed: fuzzed.name)
def test_the_file_that_is_changed_was_right_but_for_digests(fuzzed, tmp_path):
    """Else only the first lines of a reader would ever be reached."""
    fuzzed.beside(tmp_path)
    path = tmp_path / fuzzed.file
    path.write_bytes(fuzzed.right())
    fuzzed.read(path)


def test_a_reader_that_fails_is_found(tmp_path):
    broken = FUZZED[0].with_reader(lambda path: 1 // (len(path.read_bytes()) % 7))
    assert "ZeroDivisionError" in broken.problem(tmp_path, b"1234567")
