"""Versions beside a release: from the table first, then from the resolver, which is asked once."""

from datetime import UTC, datetime

import pytest

from conformance.core.errors import ReleaseError
from conformance.tools.releases import installers, upload_times
from conformance.tools.releases.pins import Release
from conformance.tools.releases.solving import choices

DAY = datetime(2026, 8, 1, tzinfo=UTC)
FOUND = {"mlx-vlm": "0.6.11", "mlx": "0.32.0", "transformers": "5.14.1", "mlx-lm": "0.31.3"}


@pytest.fixture
def asked(monkeypatch):
    calls = []

    def solve(wanted, before):
        calls.append((tuple(wanted), before))
        return {**FOUND, "numpy": "2.4.6"}

    monkeypatch.setattr(upload_times, "uploaded", lambda release: DAY)
    monkeypatch.setattr(installers, "solve", solve)
    return calls


def test_the_resolver_is_asked_as_of_the_release_once_and_only_what_matters_is_held(
    asked, tmp_path
):
    release = Release("mlx-vlm", "0.6.11")
    for _ in range(2):
        assert list(choices(release, {}, tmp_path)) == [("the resolver", FOUND)]
    ((wanted, before),) = asked
    assert wanted[0] == "mlx-vlm==0.6.11"
    assert {"transformers", "mlx-lm"} <= set(wanted)
    assert before == DAY


def test_the_table_comes_first_and_given_versions_replace_both(asked, tmp_path):
    release = Release("mlx-vlm", "0.6.10")
    (first, known), (second, solved) = choices(release, {"mlx": "9"}, tmp_path)
    assert (first, second) == ("the table", "the resolver")
    assert (known["mlx"], known["transformers"]) == ("9", "5.14.1")
    assert solved["mlx"] == "9"


def test_the_resolver_is_not_asked_while_the_table_serves(asked, tmp_path):
    assert next(choices(Release("mlx-lm", "0.28.0"), {}, tmp_path))[0] == "the table"
    assert asked == []


def test_what_the_resolver_says_is_passed_on(monkeypatch, tmp_path):
    def refuse(release):
        raise ReleaseError("no such release")

    monkeypatch.setattr(upload_times, "uploaded", refuse)
    with pytest.raises(ReleaseError, match="no such release"):
        list(choices(Release("mlx-vlm", "0.6.11"), {}, tmp_path))
