"""What old releases of mlx-vlm are given in their own terms."""

import pytest
from packaging.version import Version

from conformance.plugins.mlx_vlm import compat


@pytest.mark.parametrize("config", [{}, {"eos_token_id": None}, {"eos_token_id": 0}])
def test_an_old_release_gets_an_end_of_text_that_it_does_not_take_for_none(monkeypatch, config):
    monkeypatch.setattr(compat, "older", lambda *_: True)
    assert compat.with_end_of_text(config)["eos_token_id"]


def test_other_releases_get_the_config_as_it_is(monkeypatch):
    monkeypatch.setattr(compat, "older", lambda *_: False)
    assert compat.with_end_of_text({"eos_token_id": 0}) == {"eos_token_id": 0}


@pytest.mark.parametrize(("version", "reports"), [("0.5.0", False), ("0.6.0", True)])
def test_prefills_are_reported_from_0_6_on(monkeypatch, version, reports):
    """Up to 0.5 the first list of ``next`` is empty by its documentation."""
    older = lambda _, least: Version(version) < Version(least)  # noqa: E731
    monkeypatch.setattr(compat, "older", older)
    assert compat.reports_prefills() is reports
