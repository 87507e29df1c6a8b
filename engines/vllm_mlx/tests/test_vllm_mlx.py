"""The engines play the ladder with the known defects, and each defect's script still shows it."""

import pytest
from known_defects import test_a_script_shows_its_defect, test_every_known_defect_has_its_script

__all__ = ["test_a_script_shows_its_defect", "test_every_known_defect_has_its_script"]


@pytest.mark.parametrize("engine", ["vllm_mlx", "vllm_mlx_paged"])
def test_two_rows_give_what_each_gives_alone(run, engine):
    done = run("-m", "conformance", "smoke", "--engine", engine, "--family", "llama")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("engine", ["vllm_mlx", "vllm_mlx_paged"])
def test_the_ladder_shows_the_known_defects_and_no_other(played, engine):
    assert played(engine) >= 18
