"""Each way that a run can end: whether its file is replaced, and the exit code."""

import pytest

from conformance.app.pytest_plugin.run_end import RunEnd

OK, FAILED, INTERRUPTED, INTERNAL, NONE = 0, 1, 2, 3, 5
ALL, SOME = ("a", "b"), ("a",)


@pytest.mark.parametrize(
    ("end", "status", "whole", "code"),
    [
        (RunEnd(ALL, ALL), OK, True, 0),
        (RunEnd(ALL, ALL), FAILED, True, 1),
        (RunEnd(ALL, ALL, interrupted=True), INTERRUPTED, True, 2),
        (RunEnd(ALL, ALL), INTERNAL, True, 2),
        (RunEnd(ALL, SOME), OK, False, 2),  # an internal error in a worker, or lost workers
        (RunEnd(ALL, SOME), FAILED, False, 2),
        (RunEnd(ALL, SOME, interrupted=True), FAILED, False, 2),  # the second signal came late
        (RunEnd(ALL, SOME, interrupted=True, first_failure=True), FAILED, False, 2),
        (RunEnd(ALL, SOME, first_failure=True), INTERRUPTED, True, 1),  # -x, as xdist ends it
        (RunEnd(ALL, SOME, first_failure=True), FAILED, True, 1),
        (RunEnd(ALL, ALL, unwritten=True), OK, True, 2),  # a full disk
        (RunEnd(ALL, (), interrupted=True), INTERRUPTED, False, 2),
        (RunEnd((), (), empty_shard=True), NONE, True, 0),  # more shards than families
        (RunEnd((), ()), NONE, False, 5),  # -k with a word that is nowhere
        (RunEnd((), ()), OK, False, 0),  # -k goldens
        (RunEnd((), ()), FAILED, False, 1),
        (RunEnd((), ()), INTERNAL, False, 2),
    ],
)
def test_only_what_is_whole_replaces_a_file_and_ends_well(end, status, whole, code):
    assert (end.whole, end.exit_code(status)) == (whole, code)


def test_the_header_says_what_was_planned_and_why_less_is_there():
    assert RunEnd(ALL, SOME).header.planned == 2
    assert RunEnd(ALL, ALL, first_failure=True).header.stopped == ""
    assert RunEnd(ALL, SOME, first_failure=True).header.stopped == "-x"
