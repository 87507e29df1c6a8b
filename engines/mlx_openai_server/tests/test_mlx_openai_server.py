"""The server is asked, with the known defects, and each defect's script still shows it."""

import pytest
from known_defects import test_a_script_shows_its_defect, test_every_known_defect_has_its_script

__all__ = ["test_a_script_shows_its_defect", "test_every_known_defect_has_its_script"]

JUDGED = ("alone", "together", "joins", "ends", "slots", "stops", "samplers", "malformed")


@pytest.mark.parametrize("name", JUDGED)
def test_what_it_serves_shows_the_known_defects_and_no_other(played, name):
    assert played("mlx_openai_server", "--scenario", f"served_{name}") == 1
