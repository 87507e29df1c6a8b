"""Golden files on disk: whole or not at all."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from miniatures.goldens import golden, recorded

from conformance.core.errors import GoldenError
from conformance.tools.golden.files import put_verified, write_whole
from conformance.tools.golden.format import Verification, load_golden, to_text

GOLDEN = golden(recorded())
PROOF = Verification("transformers 5.0", 2e-6, 2)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "toy" / "calm.json"
    write_whole(path, to_text(GOLDEN))
    return path


def test_what_was_verified_is_noted_and_all_else_stays(path):
    put_verified(path, PROOF)
    found = load_golden(path)
    assert found.provenance.verified == PROOF
    assert found == golden(recorded(), verified=PROOF)


def test_a_golden_that_is_not_there_cannot_be_verified(tmp_path):
    with pytest.raises(GoldenError, match=r"calm\.json: can't be read"):
        put_verified(tmp_path / "calm.json", PROOF)
    assert list(tmp_path.iterdir()) == []


def test_a_text_that_is_no_golden_is_not_written(path):
    before = path.read_bytes()
    with pytest.raises(GoldenError, match="digest"):
        write_whole(path, to_text(GOLDEN).replace("abacus", "slide rule"))
    assert path.read_bytes() == before


def test_a_failure_in_the_middle_leaves_the_old_file_and_no_other(path, monkeypatch):
    before = path.read_bytes()
    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(GoldenError, match=r"calm\.json: cannot write the golden: No space left"):
        put_verified(path, PROOF)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def fails(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.skipif(os.name == "nt", reason="there are no such signals")
def test_a_process_that_is_killed_in_the_middle_leaves_the_old_file_whole(path):
    before = path.read_bytes()
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from conformance.tools.golden.format import Verification\n"
        "from conformance.tools.golden.files import put_verified\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "put_verified(Path(sys.argv[1]), Verification('x', 0.0, 1))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    assert load_golden(path) == GOLDEN
