"""What every family has wrong is left out by its features; a family's own verdicts are counted."""

import contextlib
from dataclasses import replace

from conformance.checks.expectations import Defect, Expectations
from conformance.core.mends import Mend
from conformance.run.mending import Mending
from conformance.run.registry import Registry
from conformance.run.session import Session
from conformance.scenarios.features import Feature
from conformance.tools.explore.exclusions import clean, left_out, mended, verdicts

WORDS = dict.fromkeys(("package", "where", "why", "script"), "here")


def defect(families, **found):
    return Defect(
        id="wrong", engines=("mlx_lm",), families=families, versions=">0", verdicts=found, **WORDS
    )


def test_a_defect_of_all_families_leaves_its_feature_out():
    known = Expectations((defect(("*",), samplers="drift", invalid="protocol"),))
    assert left_out(known, "mlx_lm", "llama") == (Feature.PROCESSORS,)
    assert left_out(known, "mlx_vlm", "llama") == ()


def test_a_mended_defect_leaves_nothing_out():
    known = Expectations((defect(("*",), samplers="drift"),))
    assert left_out(known, "mlx_lm", "llama", ("wrong",)) == ()
    assert verdicts(known, "mlx_lm", "llama", ("wrong",)) == ()


def test_mends_that_leave_single_streams_alone_are_used():
    whole = Mend("whole", ("wrong",), "", lambda _: contextlib.nullcontext())
    known = Expectations((defect(("llama",), ragged="drift"),))
    for repair, found in ((whole, ("wrong",)), (replace(whole, single_stream=True), ())):
        registry = Registry({}, {}, {}, {}, {}, (), mends={"wrong": repair})
        mending = Mending(Session(registry))
        assert mended(known, mending, "mlx_lm", "llama") == found
        assert mended(known, mending, "mlx_vlm", "llama") == ()


def test_a_familys_own_defect_and_another_policy_leave_nothing_out():
    known = Expectations((defect(("llama",), samplers="drift"), defect(("*",), quantized="policy")))
    assert left_out(known, "mlx_lm", "llama") == ()


def test_verdicts_are_those_of_all_entries_of_the_family():
    known = Expectations(
        (defect(("llama",), ragged=("drift", "nan")), defect(("other",), ragged="crash"))
    )
    assert verdicts(known, "mlx_lm", "llama") == ("drift", "nan")


def test_families_with_known_defects_are_not_clean():
    known = Expectations(
        (defect(("llama",), ragged="diverged"), defect(("gpt*",), invalid="diverged"))
    )
    assert not clean(known, "mlx_lm", "llama")
    assert clean(known, "reference_solo", "llama")
    assert clean(known, "mlx_lm", "gpt2")
    assert clean(known, "mlx_lm", "mamba")
