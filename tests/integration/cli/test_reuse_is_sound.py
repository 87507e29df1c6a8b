"""A result is used again only where all that it came from is as it was.

One run in a small environment of its own is right; then one thing is changed, before the next run
or during the first one. The next run must play the case again. What a new kind of input needs is a
row of a table. Settings and machines have their tables in ``unit/reference/test_surroundings.py``.
"""

import compileall
import json
import os
import shutil
import time
from pathlib import Path

import mlx_lm
import pytest

FAMILIES = Path(__file__).parents[3] / "conformance/plugins/mlx_lm/families"

# A plugin that is installed, and runs what is in a file once, in the middle of a case.
PACKED = """
import os
from pathlib import Path

from conformance.plugins.mlx_lm.engine import MlxLmEngine
from conformance.run.hookspecs import hookimpl

SITE = Path(__file__).parent
_made = MlxLmEngine.__init__


def _make(self, model, options):
    once = SITE.parent / "once.py"
    if once.exists():
        text = once.read_text()
        once.unlink()
        exec(text, globals())
    _made(self, model, options)


MlxLmEngine.__init__ = _make


def edit(path):
    with open(path, "ab") as file:
        file.write(b"\\n# during\\n")


@hookimpl
def conformance_families():
    return []
"""

# An engine of the user's.
ENGINE = """
from conformance.plugins.mlx_lm.engine import MlxLmEngine
from conformance.run.hookspecs import hookimpl


class Mine(MlxLmEngine):
    name = "mine"


@hookimpl
def conformance_engines():
    return [Mine]
"""

PATCH = """
from conformance.run.hookspecs import hookimpl


@hookimpl
def conformance_families():
    return []
"""


class Small:
    """A folder of installed packages, with a library among them, and one of the user's."""

    def __init__(self, folder, environment, conformance):
        self.folder, self.site, self.user = folder, folder / "site", folder / "user"
        self.variables = {}
        self._conformance = conformance
        environment["TMPDIR"] = str(folder / "moment")
        environment["PYTHONPATH"] = str(self.site)
        if not self.site.exists():
            self._make()

    def _make(self):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(mlx_lm.__file__).parent, self.site / "mlx_lm", ignore=ignored)
        info = self.site / "packed-1.0.dist-info"
        for path, text in {
            self.folder / "moment/nothing": "",
            info / "METADATA": "Metadata-Version: 2.1\nName: packed\nVersion: 1.0\n",
            info / "entry_points.txt": "[mlx_conformance]\npacked = packed_plugin\n",
            self.site / "packed_plugin.py": PACKED,
            self.site / "packed_data.json": "{}",
            self.site / "one": "1",
            self.site / "two": "2",
            self.user / "mine.py": ENGINE,
            self.user / "patching.py": PATCH,
            self.user / "own_model.py": "from mlx_lm.models.llama import Model, ModelArgs\n",
            self.user / "own.json": _own_family(model_file="own_model.py", module="own_model"),
            self.user / "config.json": _own_family(),
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.site / "linked").symlink_to("one")

    def played(self, *options):
        """Whether a run plays its case, or uses an earlier result."""
        options = options or ("--engine", "mlx_lm", "--family", "llama")
        time.sleep(0.05)  # a file is older than the run by more than a tick of the clock
        done = self._conformance(
            *("run", *options, "--scenario", "batch_of_one"),
            *("--jobs", "1", "--json", "r.jsonl"),
            **self.variables,
        )
        assert done.code == 0, done
        (result,) = done.results()
        return not result["reused"]


def _own_family(**facts):
    family = json.loads((FAMILIES / "llama.json").read_text())
    family["conformance"] |= facts
    return json.dumps(family)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all rows: what one of them changed is what the next one begins with."""
    return tmp_path_factory.mktemp("reuse")


@pytest.fixture
def small(folder, environment, conformance):
    environment["XDG_CACHE_HOME"] = str(folder / "cache")
    return Small(folder, environment, conformance)


@pytest.fixture
def kept(small):
    """The environment, with a result that holds: the second run uses it."""
    if small.played():
        assert not small.played()
    return small


def append(path):
    path.write_text(path.read_text() + "\n# changed\n")


def replace(path):
    """As ``mv`` of an older file does."""
    stat = path.stat()
    other = path.with_name("other")
    other.write_text(path.read_text() + "\n")
    os.utime(other, ns=(stat.st_atime_ns, 1))
    other.rename(path)


def relink(small):
    (small.site / "linked").unlink()
    (small.site / "linked").symlink_to("two")


def shadow(small):
    folder = small.user / "shadow"
    folder.mkdir()
    (folder / "packed_data.py").touch()
    small.variables["PYTHONPATH"] = f"{folder}{os.pathsep}{small.site}"


CHANGES = {
    "the model's module": lambda s: append(s.site / "mlx_lm/models/llama.py"),
    "a module that all models share": lambda s: append(s.site / "mlx_lm/models/cache.py"),
    "the generator": lambda s: append(s.site / "mlx_lm/generate.py"),
    "a file by an older one": lambda s: replace(s.site / "mlx_lm/models/base.py"),
    "a file of the library that is no module": lambda s: (s.site / "mlx_lm/x.metal").touch(),
    "an installed module, same version": lambda s: append(s.site / "packed_plugin.py"),
    "an installed module by an older one": lambda s: replace(s.site / "packed_plugin.py"),
    "an installed data file": lambda s: append(s.site / "packed_data.json"),
    "the metadata of a package": lambda s: append(s.site / "packed-1.0.dist-info/METADATA"),
    "a package that is added": lambda s: append_new(s.site / "new-1.0.dist-info/METADATA"),
    "a .pth file": lambda s: (s.site / "a.pth").write_text("import this"),
    "compiled code that is added": lambda s: (s.site / "fast.pyc").touch(),
    "where a link leads": relink,
    "a module that hides an installed one": shadow,
    "a variable that something may read": lambda s: s.variables.update(SMALL_MODE="fast"),
    "hashes of texts": lambda s: s.variables.update(PYTHONHASHSEED="7"),
    "threads of BLAS": lambda s: s.variables.update(OPENBLAS_NUM_THREADS="1"),
}


def append_new(path):
    path.parent.mkdir()
    path.touch()


# By day one of each kind; each row is two runs.
DAY = {
    "the model's module",
    "a file by an older one",
    "an installed data file",
    "a variable that something may read",
}


def by_day(rows, day):
    return [pytest.param(row, marks=[pytest.mark.nightly] * (row not in day)) for row in rows]


@pytest.mark.parametrize("what", by_day(CHANGES, DAY))
def test_what_changed_between_runs_plays_the_case_again(kept, what):
    CHANGES[what](kept)
    assert kept.played()


DURING = {
    "the model's module": "import mlx_lm.models.llama as m; edit(m.__file__)",
    "a shared module": "import mlx_lm.models.cache as m; edit(m.__file__)",
    "an installed module": "edit(__file__)",
    "an installed data file": "edit(SITE / 'packed_data.json')",
    "a package": "(SITE / 'late-1.dist-info').mkdir(); edit(SITE / 'late-1.dist-info/METADATA')",
    "an older file in its place": "edit(SITE / 'x'); os.utime(SITE / 'x', (1, 1));"
    "(SITE / 'x').rename(SITE / 'packed_data.json')",
}


@pytest.mark.parametrize("what", by_day(DURING, {"the model's module"}))
def test_what_changes_during_a_run_leaves_nothing_to_use(small, what):
    """Nobody knows then which of the two was run; fresh results are kept, too."""
    (small.folder / "once.py").write_text(DURING[what])
    assert small.played("--engine", "mlx_lm", "--family", "llama", "--fresh")
    assert not (small.folder / "once.py").exists(), "the change was made"
    assert small.played()


def test_a_family_of_the_users_own_is_played_again_with_its_config(small):
    options = ("--engine", "mlx_lm", "--family-file", str(small.user / "config.json"))
    options += ("--family", "config")
    assert small.played(*options)
    assert not small.played(*options)
    (small.user / "config.json").write_text(_own_family().replace("1e-05", "2e-05"))
    assert small.played(*options)


UNSEEN = {
    "an engine of the user's": ("--engine", "mine", "--family", "llama", "-p", "mine"),
    "a plugin that is named": ("--engine", "mlx_lm", "--family", "llama", "-p", "patching"),
    "a model of the user's": (
        *("--engine", "mlx_lm", "--family", "own", "--family-file", "own.json"),
    ),
}


@pytest.mark.parametrize("what", by_day(UNSEEN, {"a plugin that is named"}))
def test_code_of_the_users_is_played_each_time(kept, what, tmp_path):
    """Of what it does not all is seen: it asks the time, the folder, another process."""
    for path in kept.user.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)  # the folder of the run
    options = UNSEEN[what]
    assert kept.played(*options)
    assert kept.played(*options)
    assert not kept.played(), "what was kept without it still holds"


def test_a_store_that_was_edited_or_that_others_may_write_to_is_not_believed(kept, folder):
    store = folder / "cache/mlx-conformance"
    for path in (store / "results").rglob("llama.json"):
        path.write_bytes(path.read_bytes().replace(b'"exact"', b'"tied" '))
    assert kept.played()
    store.chmod(0o777)
    assert kept.played()
    store.chmod(0o755)
    assert not kept.played()


@pytest.mark.nightly
def test_optimized_python_is_another_one(kept, start):
    kept._conformance = lambda *arguments, **variables: start(
        "-O", "-c", "from conformance.app.cli import main; main()", *arguments, **variables
    )
    assert kept.played()


@pytest.fixture
def spoiled(tmp_path, environment, conformance):
    """An environment of its own, for what cannot be undone."""
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    return Small(tmp_path, environment, conformance)


@pytest.mark.nightly
def test_a_library_from_an_archive_is_played_each_time(spoiled, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "lib"), "zip", spoiled.site, "mlx_lm")
    shutil.rmtree(spoiled.site / "mlx_lm")
    spoiled.variables["PYTHONPATH"] = f"{archive}{os.pathsep}{spoiled.site}"
    assert spoiled.played()
    assert spoiled.played()


def test_a_library_without_source_is_played_each_time(spoiled):
    compileall.compile_dir(spoiled.site / "mlx_lm", quiet=1, legacy=True)
    for path in (spoiled.site / "mlx_lm").rglob("*.py"):
        path.unlink()
    assert spoiled.played()
    assert spoiled.played()
