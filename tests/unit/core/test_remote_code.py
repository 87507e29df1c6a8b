"""Code of a sealed folder is not run, whichever way it is imported; all other code is."""

import contextlib
import ctypes
import importlib.util
import pickle
import sys

import pytest

from conformance.core import remote_code
from conformance.core.errors import Unsupported
from conformance.core.remote_code import sealed

CODE = "open(MARK, 'w').close()\n"


class Hostile:
    """Unpickling it opens a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "check point"
    made.mkdir()
    (made / "evil.py").write_text(CODE.replace("MARK", repr(str(tmp_path / "mark"))))
    return made


def load(path):
    spec = importlib.util.spec_from_file_location("evil", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def by_path(folder, tmp_path):
    load(folder / "evil.py")


def by_a_link(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    load(tmp_path / "link" / "evil.py")


def by_the_search_path(folder, tmp_path):
    sys.path.insert(0, str(folder))
    try:
        import evil  # noqa: F401, PLC0415
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("evil", None)


def by_a_copy(folder, tmp_path):
    """As transformers does, wherever its cache is."""
    copies = tmp_path / "transformers_modules"
    copies.mkdir()
    (folder / "evil.py").rename(copies / "evil.py")
    load(copies / "evil.py")


def by_its_text(folder, tmp_path):
    exec(compile((folder / "evil.py").read_text(), str(folder / "evil.py"), "exec"))


@pytest.mark.parametrize(
    "way",
    [by_path, by_a_link, by_the_search_path, by_a_copy, by_its_text],
    ids=lambda w: w.__name__,
)
def test_code_is_run_only_where_it_is_trusted(way, folder, tmp_path):
    with (
        pytest.raises(Unsupported, match=r"own to be run \(.*evil.*\); --trust-remote-code allows"),
        sealed(folder, trusted=False),
    ):
        way(folder, tmp_path)
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("trusted", [True, False])
def test_outside_or_trusted_it_runs(trusted, folder, tmp_path):
    with sealed(folder if trusted else tmp_path / "another", trusted=trusted):
        load(folder / "evil.py")
    assert (tmp_path / "mark").exists()


def test_a_seal_ends_and_an_inner_one_does_not_end_the_outer(folder, tmp_path):
    with sealed(folder, trusted=False):
        with sealed(folder, trusted=False):
            pass
        with pytest.raises(Unsupported):
            load(folder / "evil.py")
    load(folder / "evil.py")
    assert (tmp_path / "mark").exists()


def test_a_library_that_swallows_the_error_has_run_nothing(folder, tmp_path):
    with sealed(folder, trusted=False), contextlib.suppress(Exception):
        load(folder / "evil.py")
    assert not (tmp_path / "mark").exists()


def test_native_code_of_the_folder_is_not_loaded(folder):
    (folder / "evil.so").write_bytes(b"no library")
    with pytest.raises(Unsupported, match=r"evil\.so"), sealed(folder, trusted=False):
        ctypes.CDLL(str(folder / "evil.so"))


def test_nothing_is_unpickled(folder, tmp_path):
    data = pickle.dumps(Hostile(tmp_path / "mark"))
    with pytest.raises(Unsupported, match="holds a pickle"), sealed(folder, trusted=False):
        pickle.loads(data)
    assert not (tmp_path / "mark").exists()


def test_a_tiny_family_may_not_name_code_of_the_hub_either(folder, tmp_path):
    with pytest.raises(Unsupported, match="the config: asks"), sealed(None, trusted=False):
        by_a_copy(folder, tmp_path)
    with sealed(None, trusted=False):
        pickle.loads(pickle.dumps(Unsupported("only a checkpoint's pickles are refused")))


def test_in_the_folder_itself_programs_still_make_code(folder, monkeypatch):
    """``--model .``: a named tuple's code has no file, and the current folder is the checkpoint."""
    monkeypatch.chdir(folder)
    with sealed(folder, trusted=False):
        assert eval(compile("1 + 1", "<string>", "eval")) == 2


def test_an_environment_inside_the_folder_is_not_its_code(folder, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(folder / ".venv"))
    remote_code._sealed_folders.cache_clear()
    (folder / ".venv").mkdir()
    (folder / ".venv" / "fine.py").write_text("x = 1\n")
    with sealed(folder, trusted=False):
        load(folder / ".venv" / "fine.py")
    remote_code._sealed_folders.cache_clear()
