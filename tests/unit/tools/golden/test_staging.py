"""The gate: what passes, and each reason why something does not."""

import msgspec
import numpy as np
import pytest
from miniatures.goldens import SensitiveLibrary, staged
from miniatures.library import (
    ForgetfulLibrary,
    InsensitiveLibrary,
    OverflowingLibrary,
    RestlessLibrary,
    subject,
)

from conformance.checks.expectations import Defect, Expectations
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import GoldenError
from conformance.core.verdict import Verdict
from conformance.tools.golden.format import Verification, parse_golden, to_text
from conformance.tools.golden.recipe import recipe_hash
from conformance.tools.golden.staging import Staged, requests_of, stage, with_verified


def entry(**changed):
    given = {
        "id": "off-by-one",
        "engines": ("toy",),
        "families": ("toy",),
        "package": "toy",
        "versions": "==1",
        "where": "toy.py:1",
        "why": "it forgets",
        "script": "s.py",
        "verdicts": {"repeat": Verdict.ORACLE},
    }
    return Expectations((Defect(**{**given, **changed}),))


class Forgetful(SensitiveLibrary, ForgetfulLibrary): ...


class Restless(SensitiveLibrary, RestlessLibrary): ...


class Insensitive(SensitiveLibrary, InsensitiveLibrary): ...


class Overflowing(SensitiveLibrary, OverflowingLibrary): ...


class Numb(SensitiveLibrary):
    nats = 1e-5


class Broken(SensitiveLibrary):
    def logits(self, model, fed, options, *, alone):
        logits = super().logits(model, fed, options, alone=alone).copy()
        logits[3] = np.nan
        return logits


def test_what_passes_is_the_single_stream_with_where_it_is_from():
    library = SensitiveLibrary()
    loaded = subject(library)
    golden = stage(loaded).golden
    assert parse_golden(to_text(golden), path="x") == golden
    assert [r.request for r in golden.requests] == list(requests_of(loaded))
    for recorded in golden.requests:
        stream = loaded.oracle.solo(recorded.request, EngineOptions(), None)
        assert recorded.tokens == stream.tokens
        assert recorded.top[0][0][0] == stream.tokens[0]
    source = golden.provenance
    assert (source.recipe, source.weights) == (
        recipe_hash(loaded.family),
        library.fingerprint(None),
    )
    assert source.oracle == (
        "single stream, within noise of the pass without a cache (two, short, medium, image)"
    )
    assert (source.versions, source.device) == ({"toy": "1"}, "abacus")


def test_two_stagings_are_the_same():
    assert to_text(staged().golden) == to_text(staged().golden)


@pytest.mark.parametrize(
    ("library", "sentence"),
    [
        (Broken, "logprobs at step 0 are not finite"),
        (Numb, "the model is insensitive: its weakest signal is 1 times its rounding"),
        (Restless, "the single stream of 'two' differs from itself"),
        (Forgetful, "the single stream of 'two' and the pass without a cache differ by"),
        (Insensitive, "the noise measurement moved no logprob"),
        (Overflowing, "the noise measurement gave NaN"),
    ],
)
def test_the_gate_refuses(library, sentence):
    with pytest.raises(GoldenError, match=f"^toy/toy: no golden: .*{sentence}"):
        stage(subject(library()))


def test_a_known_disagreement_is_recorded_as_what_it_is():
    golden = stage(subject(Forgetful()), entry()).golden
    assert golden.provenance.oracle == (
        "single stream, which the pass without a cache is known to contradict: off-by-one"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"families": ("other",)},
        {"engines": ("reference_*",)},
        {"versions": "==2"},
        {"package": "other"},
        {"verdicts": {"repeat": Verdict.DIVERGED}},
        {"verdicts": {"ragged": Verdict.ORACLE}},
    ],
    ids=str,
)
def test_an_entry_about_something_else_excuses_nothing(changed):
    with pytest.raises(GoldenError, match="no expectation explains it"):
        stage(subject(Forgetful()), entry(**changed))


def test_nothing_else_makes_a_staged_golden():
    golden = staged().golden
    with pytest.raises(TypeError, match="makes a staged golden"):
        Staged(golden, key="passed")


def test_what_was_verified_stays_verified_with_the_same_recipe_and_release():
    proof = Verification("transformers 5", 1e-6, 6)
    new = staged()
    old = provenance(new.golden, verified=proof)
    assert with_verified(new, old).golden == old
    assert with_verified(new, new.golden) == new
    for changed in ({"recipe": "c" * 64}, {"weights": "c" * 64}, {"versions": {"toy": "2"}}):
        assert with_verified(new, provenance(old, **changed)) == new


def provenance(golden, **changed):
    source = msgspec.structs.replace(golden.provenance, **changed)
    return msgspec.structs.replace(golden, provenance=source)
