"""Reasons why modules have no family."""

import pytest

from conformance.backend.model_modules import load_exclusions
from conformance.core.errors import FamilyError


@pytest.mark.parametrize("text", ["a = ''", "a = 1", "a = ["])
def test_an_exclusion_without_a_reason_is_an_error_that_names_the_file(tmp_path, text):
    path = tmp_path / "_excluded.toml"
    path.write_text(text)
    with pytest.raises(FamilyError, match=r"_excluded\.toml"):
        load_exclusions(path)


def test_a_missing_file_of_exclusions_is_an_error(tmp_path):
    with pytest.raises(FamilyError, match="can't be read"):
        load_exclusions(tmp_path / "none.toml")
