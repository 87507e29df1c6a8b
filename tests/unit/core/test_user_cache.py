"""Where this package keeps things from run to run."""

from pathlib import Path

from conformance.core.user_cache import user_cache


def test_the_users_cache_folder_is_taken(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert user_cache() == tmp_path / "mlx-conformance"


def test_a_relative_one_is_ignored(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setenv("HOME", "/home/someone")
    assert user_cache() == Path("/home/someone/.cache/mlx-conformance")
