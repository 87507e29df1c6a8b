"""What the tests of all packages have in common: the package, its known defects, their scripts."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for known_defects.py


def pytest_generate_tests(metafunc):
    """A test with ``script`` is for each script of its package."""
    if "script" in metafunc.fixturenames:
        scripts = (Path(metafunc.module.__file__).parents[1] / "scripts").glob("*.py")
        names = sorted(path.name for path in scripts if not path.name.startswith("tiny_"))
        metafunc.parametrize("script", names)


@pytest.fixture(name="package")
def package_(request):
    """The folder of the package."""
    return request.path.parents[1]


@pytest.fixture(name="run")
def run_(package):
    """Runs Python in the folder of the package."""

    def run(*arguments):
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=1800, check=False, cwd=package
        )

    return run


@pytest.fixture(name="played")
def played_(run, tmp_path):
    """Runs the cases of an engine with llama; the number of results, all of them as expected."""

    def played(engine, *arguments):
        file = tmp_path / "results.jsonl"
        chosen = ["--engine", engine, "--family", "llama", "--jobs", "1", "--json", file]
        done = run("-m", "conformance", "run", *chosen, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return file.read_text().count('"verdict"')

    return played
