"""A result is used again only where all that it came from is as it was.

One run in a small environment of its own is right; then one thing is changed, before the next run
or during the first one. The next run must play the case again. What a new kind of input needs is a
row of a table. Settings and machines have their tables in ``unit/reference/test_environment.py``.
"""

import compileall
import json
import os
import shutil
import sqlite3
import time
import zipfile
from pathlib import Path

import mlx_lm
import pytest

FAMILIES = Path(__file__).parents[3] / "conformance/plugins/mlx_lm/families"

# An engine of the user's, installed, that uses files of every kind.
ENGINE = """
import contextlib
import os
import sqlite3
from pathlib import Path

import user_helper
import packed_helper

from conformance.plugins.mlx_lm.engine import MlxLmEngine
from conformance.run.hookspecs import hookimpl

USER = Path(os.environ["SMALL_USER"])
AT_START = (USER / "at_start.json").read_text()


class SmallEngine(MlxLmEngine):
    name = "small"
    reusable = True

    def __init__(self, model, options):
        (USER / "data.json").read_text()
        (USER / "linked").read_text()
        with contextlib.suppress(OSError):
            (USER / "maybe.json").read_text()
        sqlite3.connect(USER / "data.db").close()
        once = USER / "once.py"
        if once.exists():
            exec(compile(once.read_bytes(), "once", "exec"))
            once.unlink()
        super().__init__(model, options)


class Heir(SmallEngine):
    name = "heir"


@hookimpl
def conformance_engines():
    return [SmallEngine, Heir]
"""


class Small:
    """A folder of installed packages, with a library among them, and one of the user's."""

    def __init__(self, folder, environment, conformance):
        self.site, self.user = folder / "site", folder / "user"
        self.variables = {}
        self._conformance = conformance
        environment["SMALL_USER"] = str(self.user)
        environment["TMPDIR"] = str(folder / "moment")
        (folder / "moment").mkdir(exist_ok=True)
        environment["PYTHONPATH"] = os.pathsep.join(
            map(str, (self.site, self.user, self.user / "packed.zip"))
        )
        if not self.site.exists():
            self._make()

    def _make(self):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(mlx_lm.__file__).parent, self.site / "mlx_lm", ignore=ignored)
        info = self.site / "small-1.0.dist-info"
        for path, text in {
            info / "METADATA": "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
            info / "entry_points.txt": "[mlx_conformance]\nsmall = small_engine\n",
            self.site / "small_engine.py": ENGINE,
            self.site / "small_data.json": "{}",
            self.user / "user_helper.py": "x = 1\n",
            self.user / "data.json": "{}",
            self.user / "at_start.json": "{}",
            self.user / "one": "1",
            self.user / "two": "2",
            self.user / "own_model.py": "from mlx_lm.models.llama import Model, ModelArgs\n",
            self.user / "own.json": _own_family(),
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.user / "linked").symlink_to("one")
        self.pack("x = 1\n")
        sqlite3.connect(self.user / "data.db").close()

    def pack(self, text):
        with zipfile.ZipFile(self.user / "packed.zip", "w") as archive:
            archive.writestr("packed_helper.py", text)

    def played(self, *options):
        """Whether a run plays its case, or uses an earlier result."""
        options = options or ("--engine", "small", "--family", "llama")
        time.sleep(0.05)  # a file is older than the run by more than a tick of the clock
        done = self._conformance(
            *("run", *options, "--scenario", "batch_of_one"),
            *("--jobs", "1", "--json", "r.jsonl"),
            **self.variables,
        )
        assert done.code == 0, done
        (result,) = done.results()
        return not result["reused"]


def _own_family():
    family = json.loads((FAMILIES / "llama.json").read_text())
    family["conformance"] |= {"module": "own_model", "model_file": "own_model.py"}
    return json.dumps(family)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all rows: what one of them changed is what the next one begins with."""
    return tmp_path_factory.mktemp("reuse")


@pytest.fixture
def small(folder, environment, conformance):
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    return Small(folder, environment, conformance)


def append(path):
    path.write_text(path.read_text() + "\n# changed\n")


def replace(path):
    """As ``mv`` of an older file of the same size does."""
    stat = path.stat()
    other = path.with_name("other")
    other.write_text(path.read_text() + "\n")
    os.utime(other, ns=(stat.st_atime_ns, 1))
    other.rename(path)


def relink(small):
    (small.user / "linked").unlink()
    (small.user / "linked").symlink_to("two")


CHANGES = {
    "the model's module": lambda s: append(s.site / "mlx_lm/models/llama.py"),
    "a module that all models share": lambda s: append(s.site / "mlx_lm/models/cache.py"),
    "the generator": lambda s: append(s.site / "mlx_lm/generate.py"),
    "a file by an older one": lambda s: replace(s.site / "mlx_lm/models/base.py"),
    "a file of the library that is no module": lambda s: (s.site / "mlx_lm/x.metal").touch(),
    "an installed module, same version": lambda s: append(s.site / "small_engine.py"),
    "an installed module by an older one": lambda s: replace(s.site / "small_engine.py"),
    "an installed data file": lambda s: append(s.site / "small_data.json"),
    "the metadata of a package": lambda s: append(s.site / "small-1.0.dist-info/METADATA"),
    "a package that is added": lambda s: (
        (s.site / "new-1.0.dist-info").mkdir() or (s.site / "new-1.0.dist-info/METADATA").touch()
    ),
    "a .pth file": lambda s: (s.site / "a.pth").write_text("import this"),
    "compiled code that is added": lambda s: (s.site / "fast.pyc").touch(),
    "a module of the user's": lambda s: append(s.user / "user_helper.py"),
    "a module in an archive": lambda s: s.pack("x = 2\n"),
    "a data file that is read in a case": lambda s: append(s.user / "data.json"),
    "a data file that is read at the start": lambda s: append(s.user / "at_start.json"),
    "a database": lambda s: (s.user / "data.db").write_bytes(b"x"),
    "a file that was not there": lambda s: (s.user / "maybe.json").touch(),
    "where a link leads": relink,
    "sitecustomize": lambda s: (s.user / "sitecustomize.py").write_text("x = 1"),
    "a module that hides an installed one": lambda s: s.variables.update(
        PYTHONPATH=f"{_shadow(s)}{os.pathsep}{s.user}{os.pathsep}{s.site}"
        f"{os.pathsep}{s.user / 'packed.zip'}"
    ),
    "a variable that the engine may read": lambda s: s.variables.update(SMALL_MODE="fast"),
    "hashes of texts": lambda s: s.variables.update(PYTHONHASHSEED="7"),
    "threads of BLAS": lambda s: s.variables.update(OPENBLAS_NUM_THREADS="1"),
}


def _shadow(small):
    folder = small.user / "shadow"
    folder.mkdir()
    (folder / "small_data.py").touch()
    return folder


@pytest.fixture
def kept(small):
    """The environment, with a result that holds."""
    if small.played():
        assert not small.played()
    return small


@pytest.mark.parametrize("what", CHANGES)
def test_what_changed_between_runs_plays_the_case_again(kept, what):
    CHANGES[what](kept)
    assert kept.played()


# Python that one case runs; ``edit`` adds a line to a file.
DURING = {
    "the model's module": "edit(mlx_lm.models.llama.__file__)",
    "a shared module": "edit(mlx_lm.models.cache.__file__)",
    "an installed module": "edit(small_engine.__file__)",
    "an installed data file": "edit(SITE / 'small_data.json')",
    "a package": "(SITE / 'late-1.dist-info').mkdir(); edit(SITE / 'late-1.dist-info/METADATA')",
    "a module of the user's": "edit(user_helper.__file__)",
    "an archive": "edit(USER / 'packed.zip')",
    "a data file after it was read": "edit(USER / 'data.json')",
    "a file that was not there": "edit(USER / 'maybe.json')",
    "an older file in its place": "edit(USER / 'x'); os.utime(USER / 'x', (1, 1));"
    "(USER / 'x').rename(user_helper.__file__)",
}
_ONCE = """
import sys, mlx_lm.models.llama, mlx_lm.models.cache, small_engine
SITE = Path(small_engine.__file__).parent
def edit(path):
    with open(path, "ab") as file:
        file.write(b"\\n# during\\n")
"""


@pytest.mark.parametrize("what", DURING)
def test_what_changes_during_a_run_leaves_nothing_to_use(small, what):
    """Nobody knows then which of the two was run."""
    (small.user / "once.py").write_text(f"{_ONCE}{DURING[what]}\n")
    assert small.played("--engine", "small", "--family", "llama", "--fresh")
    assert not (small.user / "once.py").exists(), "the change was made"
    assert small.played()


OWN = {
    "its config": lambda s: (s.user / "own.json").write_text(
        _own_family().replace("1e-05", "2e-05")
    ),
    "its model file": lambda s: append(s.user / "own_model.py"),
}


@pytest.mark.parametrize("what", OWN)
def test_a_family_of_the_users_own_is_played_again_with_its_files(small, what):
    options = ("--engine", "mlx_lm", "--family-file", str(small.user / "own.json"))
    options += ("--family", "own")
    if small.played(*options):
        assert not small.played(*options)
    OWN[what](small)
    assert small.played(*options)


PATCH = """
from conformance.run.hookspecs import hookimpl


@hookimpl
def conformance_families():
    return []
"""


def test_a_plugin_that_is_named_counts_also_in_the_runs_before_it_was(kept):
    small = kept
    (small.user / "patching.py").write_text(PATCH)
    given = ("--engine", "small", "--family", "llama", "--plugin", "patching")
    assert small.played(*given)
    assert not small.played(*given)
    append(small.user / "patching.py")
    assert small.played(*given)


def test_an_engine_is_used_again_only_if_its_own_class_says_so(small):
    options = ("--engine", "heir", "--family", "llama")
    assert small.played(*options)
    assert small.played(*options)


def test_a_store_that_was_edited_or_that_others_may_write_to_is_not_believed(kept, folder):
    store = folder / "cache/mlx-conformance"
    for path in (store / "results").rglob("llama.json"):
        path.write_bytes(path.read_bytes().replace(b'"exact"', b'"tied" '))
    assert kept.played()
    store.chmod(0o777)
    assert kept.played()
    store.chmod(0o755)
    assert not kept.played()


def test_optimized_python_is_another_one(kept, start):
    small = kept
    small._conformance = lambda *arguments, **variables: start(
        "-O", "-c", "from conformance.app.cli import main; main()", *arguments, **variables
    )
    assert small.played()


@pytest.fixture
def spoiled(tmp_path, environment, conformance):
    """An environment of its own, for what cannot be undone."""
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    return Small(tmp_path, environment, conformance)


def test_a_library_from_an_archive_is_played_each_time(spoiled, tmp_path):
    small = spoiled
    archive = shutil.make_archive(str(tmp_path / "lib"), "zip", small.site, "mlx_lm")
    shutil.rmtree(small.site / "mlx_lm")
    before = f"{small.site}{os.pathsep}{small.user}{os.pathsep}{small.user / 'packed.zip'}"
    small.variables["PYTHONPATH"] = f"{archive}{os.pathsep}{before}"
    assert small.played()
    assert small.played()


def test_a_library_without_source_is_played_each_time(spoiled):
    compileall.compile_dir(spoiled.site / "mlx_lm", quiet=1, legacy=True)
    for path in (spoiled.site / "mlx_lm").rglob("*.py"):
        path.unlink()
    assert spoiled.played()
    assert spoiled.played()
