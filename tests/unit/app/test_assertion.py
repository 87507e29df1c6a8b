"""Two lines prove a model: in memory, by its folder, or by a family's name."""

import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest
from checkpoint_folders import make_folder
from mlx_lm import utils
from mlx_lm.models import afm7 as afm7_module
from mlx_lm.models import llama

import conformance
from conformance import KnownDefectsWarning, assert_batching_conforms
from conformance.core.errors import ConformanceError
from conformance.core.faults.declaration import Hits
from conformance.run.registry import build_registry
from conformance.run.tiers import tier

FEW = ("batch_of_one", "ragged")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("proving") / "tiny")


@pytest.fixture
def model(folder):
    return utils.load_model(folder)[0]


class IgnoresMask(llama.Model):
    """Decodes as if nothing were padded."""

    def __call__(self, inputs, cache=None, **more):
        right = llama.create_attention_mask
        llama.create_attention_mask = lambda h, *_: "causal" if h.shape[1] > 1 else None
        try:
            return super().__call__(inputs, cache=cache, **more)
        finally:
            llama.create_attention_mask = right


def test_a_right_model_passes_and_is_left_as_it_was(model):
    kind = type(model)
    results = assert_batching_conforms(model, scenarios=FEW)
    assert [result.case for result in results] == [f"mlx_lm/llama/{s}/float32/0" for s in FEW]
    assert all(result.verdict.good for result in results)
    assert type(model) is kind


def test_a_wrong_one_fails_in_five_lines(model):
    model.__class__ = IgnoresMask
    with pytest.raises(AssertionError) as raised:
        assert_batching_conforms(model, scenarios=("batch_of_one", "ragged", "early_finish"))
    first, *lines = str(raised.value).splitlines()
    assert first.startswith("diverged: mlx_lm/llama/ragged/float32/0: schedule 'ragged', ")
    labels = [line.split(":")[0].strip() for line in lines]
    assert labels == ["what", "expected", "cause", "rerun"]
    assert "the single stream has" in lines[0]
    assert lines[0].endswith("; not as expected, too: early_finish (diverged)")
    assert "margin" in lines[1]
    assert "noise" in lines[1]
    assert "model: it is diverged on reference_solo" in lines[2]
    assert lines[3].endswith(
        'assert_batching_conforms(model, engine="mlx_lm", scenarios=["ragged"])'
    )
    assert type(model) is IgnoresMask


def test_the_quick_tier_is_the_default_and_a_part_of_the_whole(model):
    quick = {result.scenario: result for result in assert_batching_conforms(model)}
    left_out = tier("quick").choices["mlx_lm"].left_out
    assert {"*"} not in [set(left_out.get(name, ())) for name in quick]
    assert {"*"} in [set(names) for names in left_out.values()]
    (whole,) = assert_batching_conforms(model, scenarios=["cancelled"], tier="full")
    played, of_whole = ({s.name for s in r.schedules} for r in (quick["cancelled"], whole))
    assert played < of_whole
    assert set(left_out["cancelled"]) <= of_whole - played


def test_scenarios_replace_the_tier(model):
    (result,) = assert_batching_conforms(model, scenarios=["wide"], tier="quick")
    assert result.scenario == "wide"


PACKAGE = str(Path(conformance.__file__).parent)
FAILING = """
from conformance import assert_batching_conforms


def test_a_known_defect():
    assert_batching_conforms("llama", scenarios=["invalid"], known_defects=False)


def test_a_mistake():
    assert_batching_conforms("lama")
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What pytest prints about two tests that fail: of each the lines with ``E`` in front."""
    folder = tmp_path_factory.mktemp("failing")
    (folder / "test_failing.py").write_text(FAILING)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_failing.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    return done.stdout.partition("= FAILURES =")[2].partition("= short test summary")[0]


def test_pytest_shows_five_lines_and_the_callers_own(shown):
    first, _, second = shown.partition("test_a_mistake")
    errors = [line for line in first.splitlines() if line.startswith("E ")]
    assert len(errors) == 5, shown
    assert errors[0].startswith("E       AssertionError: protocol: mlx_lm/llama/invalid")
    (sentence,) = [line for line in second.splitlines() if line.startswith("E ")]
    assert sentence.endswith(
        "lama: is neither a family nor a checkpoint's folder; did you mean llama?"
    )


def test_pytest_shows_no_source_of_ours(shown):
    assert PACKAGE not in shown
    assert "registry" not in shown
    assert [line for line in shown.splitlines() if line.startswith("test_failing.py:")] == [
        "test_failing.py:6: AssertionError",
        "test_failing.py:10: ConformanceError",
    ]


def test_alone_the_wrong_one_is_right(model):
    model.__class__ = IgnoresMask
    assert assert_batching_conforms(model, scenarios=["batch_of_one"])


def test_its_own_dtype_is_taken(model):
    model.set_dtype(mx.bfloat16)
    (result,) = assert_batching_conforms(model, scenarios=["ragged"])
    assert result.dtype == "bfloat16"


def test_prompts_can_be_given(model, monkeypatch):
    seen = []
    call = llama.Model.__call__

    def recorded(self, inputs, *args, **more):
        seen.extend(inputs.flatten().tolist())
        return call(self, inputs, *args, **more)

    monkeypatch.setattr(llama.Model, "__call__", recorded)
    assert_batching_conforms(model, scenarios=["repeat"], prompts=[[301, 302, 303], [304, 305]])
    assert {301, 302, 303, 304, 305} <= set(seen)


def test_a_checkpoint_is_proved_by_its_folder(folder, tmp_path):
    (result,) = assert_batching_conforms(folder, scenarios=["ragged"], cache_dir=tmp_path)
    assert result.case == "mlx_lm/tiny/ragged/float32/0"
    assert list(tmp_path.rglob("*.npz"))


def test_a_family_is_proved_by_its_name():
    (result,) = assert_batching_conforms("gpt2", scenarios=["ragged"])
    assert result.case == "mlx_lm/gpt2/ragged/float32/0"


def test_a_known_defect_of_the_library_fails_and_is_named():
    with pytest.raises(AssertionError) as raised:
        assert_batching_conforms("llama", scenarios=["invalid"], known_defects=False)
    lines = str(raised.value).splitlines()
    assert len(lines) == 5
    cause = next(line for line in lines if line.startswith("  cause:"))
    assert "known defect batch-generator-sizes (mlx_lm/generate.py:" in cause
    assert lines[-1].split() == ["rerun:", "conformance", "show", "mlx_lm/llama/invalid/float32/0"]


def test_a_known_defect_passes_and_is_named():
    named = r"passes with .*: invalid \(protocol, known: "
    with pytest.warns(KnownDefectsWarning, match=named) as w:
        (result,) = assert_batching_conforms("llama", scenarios=["invalid"])
    assert result.known
    assert "known_defects=False lets them fail" in str(w[0].message)
    assert w[0].filename == __file__


@pytest.fixture(scope="module")
def afm7(tmp_path_factory):
    """A model of a module with a known defect, in memory, and its folder."""
    folder = make_folder(tmp_path_factory.mktemp("afm7") / "mine", family="afm7")
    return utils.load_model(folder)[0], folder


def test_a_model_whose_module_has_a_known_defect_is_not_right(afm7):
    model, folder = afm7
    with pytest.raises(AssertionError, match="known defect afm7-kv-reuse-offset") as raised:
        assert_batching_conforms(model, scenarios=["slot_reuse", "threads"], known_defects=False)
    assert "threads (diverged, known: afm7-kv-reuse-offset)" in str(raised.value)
    with pytest.warns(KnownDefectsWarning, match="afm7-kv-reuse-offset"):
        (result,) = assert_batching_conforms(folder, scenarios=["threads"])
    assert result.known == "afm7-kv-reuse-offset"


class AlsoIgnoresMask(afm7_module.Model):
    """Has the known defect, and one more behind it."""

    def __call__(self, inputs, cache=None, **more):
        right = afm7_module.create_attention_mask
        afm7_module.create_attention_mask = lambda h, *_: "causal" if h.shape[1] > 1 else None
        try:
            return super().__call__(inputs, cache=cache, **more)
        finally:
            afm7_module.create_attention_mask = right


def test_behind_an_accepted_defect_a_new_one_is_seen(afm7, monkeypatch):
    model, _ = afm7
    monkeypatch.setattr(model, "__class__", AlsoIgnoresMask)
    with pytest.raises(AssertionError, match="afm7-kv-reuse-offset: with that mended the case is"):
        assert_batching_conforms(model, scenarios=["slot_reuse"])
    assert type(model) is AlsoIgnoresMask


def test_one_whose_user_repaired_it_is_right(afm7, monkeypatch):
    model, _ = afm7
    mend = build_registry().mend_of("afm7-kv-reuse-offset")
    with mend.repair(Hits()):
        for accepted in (True, False):
            (result,) = assert_batching_conforms(
                model, scenarios=["slot_reuse"], known_defects=accepted
            )
            assert result.verdict.good


class Constant(llama.Model):
    """Has the same logits whatever it is asked."""

    def __call__(self, inputs, cache=None, **more):
        return 0.0 * super().__call__(inputs, cache=cache, **more)


def test_a_model_that_distinguishes_nothing_proves_nothing(model):
    model.__class__ = Constant
    with pytest.raises(AssertionError, match=r"vacuous: .*\n +what: +measured sensitivity"):
        assert_batching_conforms(model, scenarios=["batch_of_one"])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"engine": "mlx_vlm"}, "a model in memory must be one of mlx-lm"),
        ({"engine": "nobody"}, "no engine matches 'nobody'"),
        ({"scenarios": ["rugged"]}, "no scenario matches 'rugged'"),
        ({"tier": "fast"}, "no tier 'fast'; there are quick, default, full"),
        ({"plugins": ["gone"]}, "-p gone: there is no module of that name"),
    ],
)
def test_a_mistake_is_reported(model, more, message):
    with pytest.raises(ConformanceError, match=message):
        assert_batching_conforms(model, **more)


def test_neither_a_family_nor_a_folder_is_reported():
    with pytest.raises(ConformanceError, match="lama: is neither a family nor a checkpoint's fold"):
        assert_batching_conforms("lama")


def test_importing_the_package_stays_light():
    code = "import sys, conformance; print(sorted({'mlx', 'numpy', 'pluggy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'assert_nothing'"):
        conformance.assert_nothing  # noqa: B018
