"""Which modules of the installed release have a family, a reason, or neither."""

from pathlib import Path

import pytest

from conformance.errors import FamilyError
from conformance.family import Facts, Family, load_families
from conformance.plugins.mlx_vlm import inventory

FAMILIES = Path(inventory.__file__).parent / "families"


def family(name, module=""):
    return Family(name=name, facts=Facts(library="mlx_vlm", module=module), config={})


def test_every_installed_module_has_a_family_or_a_reason():
    found = inventory.coverage(load_families(FAMILIES), inventory.load_exclusions())
    assert found.uncovered == ()
    assert found.stale == ()


def test_coverage_reports_all_three_kinds_of_mismatch():
    found = inventory.coverage(
        [family("llama"), family("llama-sliding", "llama"), family("mamba2")],
        {"llama": "why", "gone": "why", "bert": "why"},
        modules=("llama", "new", "bert"),
    )
    assert found.uncovered == ("new",)
    assert found.not_installed == ("mamba2",)
    assert found.stale == ("gone", "llama")


def test_packages_and_plain_modules_are_both_found():
    assert {"qwen2_vl", "rope_utils"} <= set(inventory.installed_modules())


@pytest.mark.parametrize("text", ["a = ''", "a = 1", "a = ["])
def test_an_exclusion_without_a_reason_is_an_error_that_names_the_file(tmp_path, text):
    path = tmp_path / "_excluded.toml"
    path.write_text(text)
    with pytest.raises(FamilyError, match=r"_excluded\.toml"):
        inventory.load_exclusions(path)


def test_a_missing_file_of_exclusions_is_an_error(tmp_path):
    with pytest.raises(FamilyError, match="cannot read"):
        inventory.load_exclusions(tmp_path / "none.toml")
