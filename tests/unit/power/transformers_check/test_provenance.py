"""Goldens say by whom they were verified."""

import pytest

from conformance.core.errors import GoldenError
from conformance.core.schedule import Request
from conformance.power.transformers_check.check_results import (
    Explained,
    Reading,
    Result,
    State,
)
from conformance.power.transformers_check.provenance import write_verified
from conformance.tools.golden.format import Golden, Provenance, Recorded, load_golden, to_text
from conformance.tools.golden.paths import golden_path

STREAM = Reading(1.0, 2e-5, 1e-5)
VERSIONS = {"transformers and torch": "transformers 5.23.0, torch 2.13.0"}


def result(family, state=State.AGREES, **more):
    more.setdefault("stream", STREAM)
    return Result("mlx_lm", family, family, state, tokens=(1, 2), versions=VERSIONS, **more)


@pytest.fixture
def root(tmp_path):
    recorded = Recorded(Request("a", (1, 2), 1), (3,), (0.5,), (0.1,), (((3, -0.1),),))
    for family in ("llama", "gemma"):
        provenance = Provenance("r", "w", {}, "cpu", "single stream")
        golden = Golden("mlx_lm", family, "float32", 0, provenance, (recorded,))
        path = golden_path(tmp_path, "mlx_lm", family)
        path.parent.mkdir(exist_ok=True)
        path.write_text(to_text(golden))
    return tmp_path


def verified(root, family):
    return load_golden(golden_path(root, "mlx_lm", family)).provenance.verified


def test_what_agrees_is_noted_and_nothing_else(root):
    said = write_verified(root, [result("llama"), result("gemma", State.DISAGREES)])
    assert said == "written to 1 goldens"
    found = verified(root, "llama")
    assert (found.against, found.difference, found.tokens) == ("transformers 5.23.0", 2e-5, 8)
    assert verified(root, "gemma") is None


def test_what_no_longer_agrees_is_taken_back(root):
    write_verified(root, [result("llama")])
    said = write_verified(root, [result("llama", State.DISAGREES), result("gemma", State.ABSENT)])
    assert said == "written to 0 goldens; removed from those of llama"
    assert verified(root, "llama") is None


def test_changed_fields_are_written(root):
    write_verified(root, [result("llama", both={"n_group": 1})])
    assert verified(root, "llama").against == "transformers 5.23.0 (n_group=1)"


def test_a_defect_of_the_other_side_that_was_worked_around_is_written(root):
    cause = (Explained("transformers", "transformers/x.py:1", "wrong"),)
    proof = Reading(1.0, 3e-5, 1e-5)
    write_verified(root, [result("llama", State.DISAGREES, stream=None, causes=cause, proof=proof)])
    found = verified(root, "llama")
    assert found.against == "transformers 5.23.0 (but for transformers/x.py:1)"
    assert found.difference == 3e-5


def test_a_family_without_a_golden_is_reported(root):
    assert write_verified(root, [result("phi")]) == "written to 0 goldens; no golden of phi"


def test_a_damaged_golden_stays_as_it_is(root):
    path = golden_path(root, "mlx_lm", "llama")
    path.write_text(path.read_text().replace('"cpu"', '"gpu"'))
    before = path.read_bytes()
    with pytest.raises(GoldenError, match="digest"):
        write_verified(root, [result("llama")])
    assert path.read_bytes() == before
