"""Where the user's cache is."""

from pathlib import Path

from conformance.core.user_cache import user_cache


def test_it_is_where_the_user_wants_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache() == tmp_path / "mlx-conformance"


def test_it_is_in_the_home_folder_otherwise(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert user_cache() == Path.home() / ".cache" / "mlx-conformance"
