"""A family whose package needs a library that the system lacks, in processes of their own."""

import pytest

FAMILY = ("--engine", "mlx_vlm", "--family", "multi_modality")
CASE = "mlx_vlm/multi_modality/ragged/float32/0"


@pytest.fixture
def shadowed(tmp_path):
    """A folder with a cv2 that raises, in place of the installed one; `multi_modality` needs it."""

    def make(statement):
        folder = tmp_path / "shadow"
        folder.mkdir()
        (folder / "cv2.py").write_text(f"{statement}\n")
        return str(folder)

    return make


def test_the_family_is_not_playable_here_and_nothing_fails(conformance, shadowed):
    message = "libGL.so.1: cannot open shared object file: No such file or directory"
    path = shadowed(f"raise ImportError({message!r})")
    run = ("run", *FAMILY, "--scenario", "ragged", "--jobs", "1", "--json", "r.jsonl")
    done = conformance(*run, PYTHONPATH=path)
    assert done.code == 0, done
    (result,) = done.results()
    assert (result["verdict"], result["expected"], result["known"]) == ("unsupported", True, None)
    assert "not playable here: mlx_vlm/multi_modality: libGL.so.1 is missing" in done.out
    assert "apt-get install libgl1" in done.out
    assert conformance(*run, "--no-expectations", PYTHONPATH=path).code == 0
    golden = conformance("golden", "check", *FAMILY, "--jobs", "1", PYTHONPATH=path)
    assert golden.code == 0, golden
    assert "1 not playable here" in golden.out


@pytest.mark.parametrize(
    "statement",
    [
        "raise ImportError('cv2 is broken')",
        pytest.param("raise RuntimeError('libGL.so.1: cannot open')", marks=pytest.mark.nightly),
        pytest.param(
            "import ctypes; ctypes.CDLL('libnothing_of_that_name.so.7')", marks=pytest.mark.nightly
        ),
    ],
)
def test_any_other_failure_of_an_import_still_fails(conformance, shadowed, statement):
    path = shadowed(statement)
    done = conformance("run", *FAMILY, "--scenario", "ragged", "--jobs", "1", PYTHONPATH=path)
    assert done.code == 1, done
    assert "not playable" not in done.out
