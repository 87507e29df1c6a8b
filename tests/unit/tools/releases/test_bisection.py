"""The release in which a case changed, found with few releases."""

import pytest

from conformance.report.history import State
from conformance.tools.releases.bisection import bisect
from conformance.tools.releases.pins import Release

LETTERS = {"r": State.RIGHT, "w": State.WRONG, "?": State.UNKNOWN}


def find(states):
    """Bisect releases 0.0, 0.1, ... that are as the letters say; the change, and what was asked."""
    releases = [Release("mlx-lm", f"0.{i}") for i in range(len(states))]
    asked = []

    def judge(release):
        asked.append(release.version)
        return LETTERS[states[releases.index(release)]]

    return bisect(releases, judge), asked


def test_any_first_bad_release_is_found():
    for first in range(1, 16):
        change, asked = find("r" * first + "w" * (16 - first))
        assert (change.after.version, change.becomes) == (f"0.{first}", State.WRONG)
        assert len(asked) == len(set(asked)) <= 6
        assert change.tried == len(asked)


def test_the_first_good_release_is_found():
    change, _ = find("wwwrr")
    assert change.text.startswith("the first good release is mlx-lm 0.3 (wrong in 0.2;")


def test_releases_with_an_unknown_state_are_passed_over_and_named():
    change, _ = find("?w???r?")
    assert (change.before.version, change.after.version) == ("0.1", "0.5")
    assert "0.2, 0.3, 0.4, whose state is unknown" in change.text


@pytest.mark.parametrize("states", ["", "?", "r", "??", "rrr", "w?w", "rwr"])
def test_where_the_ends_are_alike_nothing_is_found_and_none_is_run_twice(states):
    change, asked = find(states)
    assert change is None
    assert len(asked) == len(set(asked))
