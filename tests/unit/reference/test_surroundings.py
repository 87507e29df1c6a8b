"""What is stored holds only in the environment that it was made in: each part of it counts."""

import os
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.core.family import Facts, Family
from conformance.reference import installed_files, surroundings
from conformance.reference.installed_files import package_folder
from conformance.reference.surroundings import Environment, family_digest

OWN, SITE = "conformance", "site"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A small installation: this package, and a folder of packages with a library in it."""
    for name in (OWN, SITE, "elsewhere"):
        (tmp_path / name).mkdir()
    for name in (
        "conformance/core/one.py", "conformance/plugins/mlx_lm/families/llama.json",
        "conformance/plugins/mlx_lm/engine.py", "conformance/plugins/mlx_lm/mends/one.py",
        "conformance/power/__init__.py", "conformance/power/faults/mlx_lm/one.py",
        "site/mlx_lm/__init__.py", "site/mlx_lm/models/llama.py", "site/mlx_lm/kernel.metal",
        "site/mlx/core.so", "site/mlx/nn/layers.py", "site/mlx/lib/mlx.metallib",
        "site/packed-1.dist-info/RECORD", "site/packed/__init__.py", "site/packed/data.json",
        "site/a.pth",
    ):  # fmt: skip
        put(tmp_path / name, "x = 1\n")
    roots = {"own": tmp_path / OWN, "installed0": tmp_path / SITE}
    monkeypatch.setattr(surroundings, "_roots", lambda: iter(roots.items()))
    monkeypatch.setattr(surroundings, "package_folder", lambda name: tmp_path / SITE / name)
    known = installed_files.Digests(tmp_path / "digests.json")
    monkeypatch.setattr(installed_files.Digests, "here", lambda: known)
    return tmp_path


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def whole():
    return Environment().whole


def test_it_is_the_same_where_nothing_changed(small):
    assert whole() == whole()


FILES = [
    "conformance/core/one.py", "site/mlx_lm/kernel.metal", "site/mlx/core.so",
    "site/mlx/nn/layers.py", "site/mlx/lib/mlx.metallib", "site/packed/__init__.py",
    "site/packed/data.json", "site/a.pth", "site/packed-1.dist-info/RECORD",
]  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_an_installed_file_counts_by_its_content(small, name):
    before = whole()
    put(small / name, "x = 2\n")
    assert whole() != before


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_takes_the_place_of_another_counts_also_with_its_time_and_size(small, name):
    time.sleep(0.01)
    first = Environment()
    stat = (small / name).stat()
    put(small / "elsewhere/other", "x = 3\n")
    os.utime(small / "elsewhere/other", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (small / "elsewhere/other").rename(small / name)
    assert Environment().contents != first.contents
    assert not first.unchanged(small / name)


@pytest.mark.parametrize("name", ["new.py", "new/__init__.py", "new-1.dist-info/METADATA", "b.pth"])
def test_what_is_installed_later_counts(small, name):
    before = whole()
    put(small / SITE / name, "x = 1\n")
    assert whole() != before


def test_modules_of_the_libraries_count_by_themselves(small):
    before, first = whole(), Environment()
    modules = first.modules("mlx_lm")
    put(small / "site/mlx_lm/models/llama.py", "x = 2\n")
    assert whole() == before
    assert Environment().modules("mlx_lm") != modules
    assert not first.unchanged_modules("mlx_lm")
    assert Environment().unchanged_modules("mlx_lm")


def test_families_count_by_themselves_and_folders_of_this_package_too(small):
    first = Environment()
    put(small / "conformance/plugins/mlx_lm/families/llama.json", "{}")
    assert whole() == first.whole
    put(small / "conformance/plugins/mlx_lm/mends/one.py", "x = 2")
    now = Environment()
    assert now.whole != first.whole
    assert now.installed == first.installed
    assert now.own("core") == first.own("core")
    assert now.own("plugins/mlx_lm", but=("mends",)) == first.own("plugins/mlx_lm", but=("mends",))


def test_what_proves_the_checks_counts_nowhere(small):
    first = Environment()
    put(small / "conformance/power/faults/mlx_lm/one.py", "x = 2")
    put(small / "conformance/power/__init__.py", "x = 3")
    put(small / "conformance/power/new.py", "x = 4")
    now = Environment()
    assert (now.whole, now.contents, now.own("")) == (first.whole, first.contents, first.own(""))
    shutil.rmtree(small / "conformance/power")
    assert Environment().whole == first.whole


COUNTING = [
    "MLX_ENABLE_TF32", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "LD_LIBRARY_PATH",
    "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "DYLD_INSERT_LIBRARIES",
    "METAL_DEVICE_WRAPPER_TYPE", "PYTHONHASHSEED", "PYTHONPATH", "PYTHONOPTIMIZE",
    "PYTHONSTARTUP", "TOKENIZERS_PARALLELISM", "TRANSFORMERS_CACHE", "HF_HUB_OFFLINE",
    "MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "MKL_NUM_THREADS", "LC_ALL", "LANG", "PYTEST_PLUGINS",
    "MY_ENGINE_MODE", "HTTP_PROXY",
]  # fmt: skip
# Of terminal, user or CI.
IDLE = ["HOME", "COLUMNS", "EDITOR", "GITHUB_RUN_ID", "SSH_TTY", "_"]


def test_a_variable_counts_unless_it_is_known_not_to(small, monkeypatch):
    counted = []
    for name in (*COUNTING, *IDLE):
        with monkeypatch.context() as patched:
            patched.delenv(name, raising=False)
            before = whole()
            patched.setenv(name, "7")
            counted += [name] if whole() != before else []
    assert counted == COUNTING


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (sys, "flags", "python -O"),
        (sys, "version", "4.0"),
        (sys, "warnoptions", ["error"]),
        (sys, "_xoptions", {"dev": True}),
        (surroundings, "_processor", lambda: "another one"),
        (surroundings, "_gpu", lambda: "H300, driver 700"),
        (surroundings.platform, "platform", lambda: "another system"),
        (surroundings.shutil, "which", lambda name: "/bin/sh"),
    ],
)
def test_interpreter_machine_and_compilers_count(small, monkeypatch, place, name, value):
    before = whole()
    if place is sys:
        place = SimpleNamespace(**vars(sys))
        monkeypatch.setattr(surroundings, "sys", place)
    monkeypatch.setattr(place, name, value)
    assert whole() != before


def test_without_the_name_of_the_gpu_nothing_is_known(small, monkeypatch):
    put(small / "site/mlx_cuda_13-1.dist-info/METADATA", "")
    monkeypatch.syspath_prepend(small / SITE)
    monkeypatch.setattr(surroundings, "_printed", lambda *command: None)
    assert (Environment().installed, whole()) == ("", "")


def test_a_processor_of_a_mac_is_asked_for_by_its_name(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(surroundings, "_printed", lambda *command: f"M9 {command[0]}")
    assert surroundings._processor() == "M9 sysctl"


def test_a_command_that_is_not_there_or_fails_prints_nothing():
    assert surroundings._printed("no-such-command") is None
    assert surroundings._printed("false") is None
    assert surroundings._printed("echo", "a name") == "a name"


def test_a_file_that_hides_an_installed_package_counts(small, monkeypatch):
    monkeypatch.syspath_prepend(small / SITE)
    monkeypatch.syspath_prepend(small / "elsewhere")
    before = whole()
    put(small / "elsewhere/packed.py", "x = 1")
    assert whole() != before


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
def test_what_runs_at_each_start_counts(small, monkeypatch, name):
    before = whole()
    put(small / "elsewhere" / f"{name}.py", "x = 1")
    found = type(sys)(name)
    found.__file__ = str(small / "elsewhere" / f"{name}.py")
    monkeypatch.setitem(sys.modules, name, found)
    assert whole() != before


def test_a_file_outside_is_unchanged_if_it_is_older_or_what_it_was_when_it_was_opened(small):
    path = small / "elsewhere/data"
    put(path, "1")
    time.sleep(0.05)
    first = Environment()
    seen = installed_files.signature(path)
    assert first.unchanged(path)
    put(path, "2")
    os.utime(path, (1, 1))
    assert not first.unchanged(path)
    assert not first.unchanged(path, seen)
    assert first.unchanged(path, installed_files.signature(path))
    path.unlink()
    assert not first.unchanged(path)


def test_a_family_counts_with_its_config_its_facts_and_its_model_file(tmp_path):
    (tmp_path / "model.py").write_text("x = 1")

    def of(**changes):
        given = {"facts": Facts(model_file="model.py"), "config": {"vocab_size": 8}} | changes
        return family_digest(Family("llama", path=str(tmp_path / "llama.json"), **given))

    before = of()
    assert of() == before
    assert of(config={"vocab_size": 9}) != before
    assert of(facts=Facts(model_file="model.py", window=4)) != before
    (tmp_path / "model.py").write_text("x = 2")
    assert of() != before


def test_digests_are_read_again_only_where_a_signature_differs(tmp_path, monkeypatch):
    path = tmp_path / "a.py"
    put(path, "x = 1")
    os.utime(path, (1, 1))
    read = []
    right = installed_files.file_digest
    monkeypatch.setattr(installed_files, "file_digest", lambda p: read.append(p) or right(p))
    monkeypatch.setattr(installed_files.time, "time", lambda: 4e9)
    for _ in range(2):
        known = installed_files.Digests(tmp_path / "digests.json")
        assert known.of(str(path), installed_files.signature(path)) == right(path)
        known.save()
    assert len(read) == 1
    put(path, "x = 2")
    assert known.of(str(path), installed_files.signature(path)) == right(path)


def test_a_damaged_file_of_digests_is_as_none(tmp_path):
    put(tmp_path / "digests.json", "[1")
    assert installed_files.Digests(tmp_path / "digests.json")._known == {}


def test_a_folder_without_code_of_its_own_is_no_package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "hollow").mkdir()
    installed_files.package_folder.cache_clear()
    assert package_folder("hollow") is None
    assert package_folder("no_such_package") is None
    assert package_folder("mlx_lm").name == "mlx_lm"


def test_links_in_a_circle_are_walked_once(tmp_path):
    put(tmp_path / "a/b.py", "")
    (tmp_path / "a/again").symlink_to(tmp_path / "a")
    (tmp_path / "a/nothing").symlink_to(tmp_path / "gone")
    assert [Path(path).name for path, _ in installed_files.walk(tmp_path)] == ["b.py"]


def test_only_modules_shadow_the_installed_ones(small, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(small / "elsewhere"), str(small / SITE)])
    before = list(surroundings.process_facts())
    for folder in (SITE, "elsewhere"):
        (small / folder / "__pycache__").mkdir()
    assert list(surroundings.process_facts()) == before, "bytecode is no module"
    put(small / "elsewhere/packed.py", "x = 2\n")
    assert list(surroundings.process_facts()) != before
