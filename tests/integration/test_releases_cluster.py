"""``releases --cluster``: each worker installs what it runs."""

import os
import subprocess
import sys

import pytest
from clusters import PATIENCE, at_work, cluster_in, until
from stand_in_releases import stand_ins

from conformance.report.jsonl import read_results

pytest.importorskip("distributed")

CHOSEN = ("mlx-lm==0.31.2,0.31.3,0.32.0", "--family", "llama", "--scenario", "ragged")
# In every process: nothing but the stand-in is installed, nothing is asked of an index.
PATCHES = """
try:
    from pathlib import Path
    from conformance.core.errors import ReleaseError
    from conformance.tools.releases import environments
    from conformance.tools.releases import pins
except ImportError:  # an environment's own interpreter
    pass
else:
    def uploaded(release):
        raise ReleaseError("the index has nothing of it")

    environments.needs = lambda without: ()
    environments.unpack = lambda folder, plugins: Path({project!r})
    pins.uploaded = uploaded
"""


@pytest.mark.nightly
def test_a_killed_workers_releases_are_run_again_and_the_table_is_that_of_one_machine(tmp_path):
    project, variables = stand_ins(tmp_path)
    patches = tmp_path / "patches"
    patches.mkdir()
    (patches / "sitecustomize.py").write_text(PATCHES.format(project=str(project)))
    variables |= {"PYTHONPATH": str(patches)}

    def started(name, *more):
        command = [sys.executable, "-m", "conformance", "releases", *CHOSEN, *more]
        own = {**os.environ, **variables, "XDG_CACHE_HOME": str(tmp_path / f"cache-{name}")}
        with (tmp_path / f"{name}.txt").open("w") as out:
            return subprocess.Popen([*command, "--json", str(tmp_path / name)], env=own, stdout=out)

    theirs = {**variables, "XDG_CACHE_HOME": str(tmp_path / "theirs")}
    with cluster_in(tmp_path / "cluster", **theirs) as (address, workers):
        running = started("there", "--cluster", address)
        try:
            until(lambda: at_work(workers), running).kill()
            assert running.wait(PATIENCE) == 0
        finally:
            running.kill()
            running.wait()
    assert started("here").wait(PATIENCE) == 0
    there, here = ((tmp_path / f"{name}.txt").read_text() for name in ("there", "here"))
    assert "diverged in 0.31.2; right in 0.31.3 - token 3 is 6" in here
    assert "mlx-lm 0.32.0 cannot be run: plugin 'mlx_lm' could not be loaded" in here
    assert there == here
    files = [sorted(path.name for path in (tmp_path / n).iterdir()) for n in ("there", "here")]
    assert files[0] == files[1] != []
    for name in files[0]:
        pair = [tmp_path / folder / name for folder in ("there", "here")]
        if "caches" in name:
            assert pair[0].read_text().strip() == pair[1].read_text().strip()
        else:
            assert read_results(pair[0]) == read_results(pair[1])
    made = (tmp_path / "theirs" / "mlx-conformance" / "releases").iterdir()
    assert not [path.name for path in made if path.name.startswith("making-")]
    assert not (tmp_path / "cache-there" / "mlx-conformance" / "releases").exists()
