"""Environments that are kept: listed with their sizes, and removed."""

from conformance.tools.releases.environments import kept, remove


def test_only_our_own_entries_are_listed_with_their_sizes_and_removed(tmp_path):
    for name in ("mlx-lm-0.31.3-abc", "package-1", "making-x", "private"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x" * 10_000)
    (tmp_path / "solved-mlx-lm-0.31.3.json").write_text("{}")
    found = kept(tmp_path)
    assert [entry.path.name for entry in found] == [
        "making-x",
        "mlx-lm-0.31.3-abc",
        "package-1",
        "solved-mlx-lm-0.31.3.json",
    ]
    assert all(entry.size >= 10_000 for entry in found[:3])
    remove(found)
    assert [path.name for path in tmp_path.iterdir()] == ["private"]


def test_a_folder_that_is_not_there_holds_nothing(tmp_path):
    assert kept(tmp_path / "none") == ()
