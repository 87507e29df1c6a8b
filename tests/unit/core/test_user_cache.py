"""The user's cache is where the desktop's convention puts it."""

from pathlib import Path

from conformance.core.user_cache import user_cache


def test_it_is_below_the_home_folder(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert user_cache() == Path.home() / ".cache" / "mlx-conformance"


def test_the_user_may_move_all_caches(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache() == tmp_path / "mlx-conformance"
