"""The gate: what passes, and each reason why something does not."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from miniatures.goldens import SensitiveLibrary, staged
from miniatures.library import (
    ForgetfulLibrary,
    InsensitiveLibrary,
    OverflowingLibrary,
    RestlessLibrary,
    family,
    subject,
)

from conformance.checks.expectations import Defect, Expectations
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import GoldenError, ModelError, Unsupported
from conformance.core.schedule import Request
from conformance.core.verdict import Verdict
from conformance.tools.golden.changes import Kind
from conformance.tools.golden.format import (
    Verification,
    load_golden,
    parse_golden,
    put_verified,
    to_text,
)
from conformance.tools.golden.recipe import recipe_hash
from conformance.tools.golden.staging import (
    TOP,
    Staged,
    accept,
    propose,
    record,
    requests_of,
    stage,
    with_verified,
)


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


REQUEST = Request("short", (1, 2), 2)


def rows(vocab=12, seed=0):
    scores = np.random.default_rng(seed).normal(size=(2, vocab)) * 3
    return (scores - np.log(np.exp(scores).sum(-1, keepdims=True))).astype(np.float32)


def test_the_most_likely_tokens_are_kept_the_best_first():
    table = rows()
    kept = record(REQUEST, (1, 2), table, np.full(2, 1e-6))
    for step, row in enumerate(table):
        assert [token for token, _ in kept.top[step]] == list(np.argsort(-row)[:TOP])


def test_rounding_stays_far_below_the_smallest_noise():
    table = rows() * 4
    kept = record(REQUEST, (1, 2), table, np.full(2, 1e-6))
    off = [
        abs(v - float(row[t])) for row, step in zip(table, kept.top, strict=True) for t, v in step
    ]
    assert max(off) <= 5.01e-8 < 2 * 2.0**-23 / 4


def test_margins_and_noise_have_three_digits():
    kept = record(REQUEST, (1, 2), rows(), np.array([1.23456e-6, 9.87654e-5]))
    assert kept.noise == (1.23e-6, 9.88e-5)
    ordered = np.sort(rows(), axis=-1)
    assert kept.margins == pytest.approx(ordered[:, -1] - ordered[:, -2], rel=5e-3)


def test_a_small_vocabulary_is_kept_whole():
    assert len(record(REQUEST, (1, 2), rows(vocab=3), np.full(2, 1e-6)).top[0]) == 3


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_what_is_not_finite_is_refused_with_its_step(bad):
    table = rows(vocab=4)
    table[1, 0] = bad
    with pytest.raises(GoldenError, match="request 'short': logprobs at step 1 are not finite"):
        record(REQUEST, (1, 2), table, np.full(2, 1e-6))


def test_a_masked_token_beyond_the_kept_ones_is_no_harm():
    table = rows()
    table[1, table[1].argmin()] = -np.inf
    assert len(record(REQUEST, (1, 2), table, np.full(2, 1e-6)).top[1]) == TOP


FAMILY = family()


class Heavier(SensitiveLibrary):
    scale = 1.5


class NoSignal(SensitiveLibrary):
    nats = 0.0


class Lost(SensitiveLibrary):
    def load(self, family, *, dtype, seed):
        raise ModelError(f"{family.name}: loading failed")


class Refusing(SensitiveLibrary):
    def load(self, family, *, dtype, seed):
        raise Unsupported("no abacus is so large")


class Stumbling(SensitiveLibrary):
    def load(self, family, *, dtype, seed):
        raise IndexError("list index\nout of range")


def proposal(root, library=SensitiveLibrary, of=FAMILY):
    return propose((library(), of), root=root, expectations=None)


def files(root):
    return {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_nothing_is_written_before_it_is_accepted(tmp_path):
    found = proposal(tmp_path)
    assert (found.label, found.changes.kind, found.writes) == ("toy/toy", Kind.NEW, True)
    assert files(tmp_path) == {}
    assert accept([found]) == (tmp_path / "toy" / "toy.json",)
    assert load_golden(tmp_path / "toy" / "toy.json") == found.staged.golden


@pytest.mark.parametrize(
    ("library", "text", "unsupported"),
    [
        (NoSignal, "toy/toy: no golden: the model is insensitive", False),
        (Lost, "toy: loading failed", False),
        (Refusing, "no abacus is so large", True),
        (Stumbling, "IndexError: list index out of range", False),
    ],
)
def test_a_refusal_has_a_reason_and_leaves_the_old_file(tmp_path, library, text, unsupported):
    accept([proposal(tmp_path)])
    before = files(tmp_path)
    found = proposal(tmp_path, library)
    assert found.refused.startswith(text)
    assert (found.unsupported, found.staged, found.writes) == (unsupported, None, False)
    assert accept([found]) == ()
    assert files(tmp_path) == before


def test_a_damaged_file_is_replaced_and_reported(tmp_path):
    accept([proposal(tmp_path)])
    path = tmp_path / "toy" / "toy.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    found = proposal(tmp_path)
    assert "not JSON" in found.damaged
    accept([found])
    assert path.read_bytes() == whole


def test_what_was_verified_stays_so_as_long_as_recipe_and_release_do(tmp_path):
    accept([proposal(tmp_path)])
    path = tmp_path / "toy" / "toy.json"
    proof = Verification("transformers 5", 1e-6, 6)
    put_verified(path, proof)
    assert not proposal(tmp_path).writes
    old = load_golden(path)
    source = msgspec.structs.replace(old.provenance, oracle="held against nothing")
    path.write_text(to_text(msgspec.structs.replace(old, provenance=source)))
    accept([proposal(tmp_path)])
    assert load_golden(path) == old
    accept([proposal(tmp_path, Heavier)])
    assert load_golden(path).provenance.verified is None, "other weights are not verified"


def test_a_failure_in_the_middle_leaves_every_file_whole(tmp_path, monkeypatch):
    names = [f"f{n}" for n in range(5)]
    of = [msgspec.structs.replace(FAMILY, name=name) for name in names]
    accept([proposal(tmp_path, of=one) for one in of])
    before = files(tmp_path)
    proposals = [proposal(tmp_path, Heavier, of=one) for one in of]
    replaced = []
    replace = Path.replace

    def fails_at_the_third(self, target):
        replaced.append(target)
        if len(replaced) == 3:
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails_at_the_third)
    with pytest.raises(GoldenError, match=r"f2\.json: cannot write the golden: No space left"):
        accept(proposals)
    after = files(tmp_path)
    assert [name for name in before if after[name] != before[name]] == ["f0.json", "f1.json"]
    assert after.keys() == before.keys()
    for path in tmp_path.rglob("*.json"):
        load_golden(path)
