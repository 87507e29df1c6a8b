"""Mutants of mlx-lm as installed: one that is detected, one that changes nothing, and others."""

import contextlib

import pytest

from conformance.power.mutants.line_recording import reach_of
from conformance.power.mutants.mutant_plan import task_for
from conformance.power.mutants.mutant_trials import Trials
from conformance.power.mutants.reach import Map
from conformance.power.mutants.targets import files_of, mutants_in
from conformance.report.mutants import Fate
from conformance.run.registry import build_registry

FILES = (
    "mlx_lm/models/cache.py",
    "mlx_lm/models/base.py",
    "mlx_lm/generate.py",
    "mlx_lm/sample_utils.py",
)
SCENARIOS = ("ragged", "samplers")


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """The result of a mutant of a function, by what its line becomes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLX_DISABLE_COMPILE", "1")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        registry = build_registry()
        files = files_of("mlx_lm", FILES)
        where = Map([reach_of(registry, "mlx_lm", "llama", files, key="", scenarios=SCENARIOS)])
        said = []
        trials = Trials(registry, lambda *what: said.append(what))

        def play(module, function, after):
            made = mutants_in({module: files[module]}, (function,))
            (mutant,) = [m for m in made if m.after == after]
            result = trials.play(task_for("mlx_lm", mutant, where.reached(mutant), most=3))
            assert not trials.tainted
            assert any(active for *_, active in said) or not result.reaching
            return result

        with contextlib.suppress(GeneratorExit):
            yield play


def test_a_mask_that_is_wrong_for_padding_is_killed(tried):
    found = tried(
        "mlx_lm/models/base.py",
        "create_causal_mask",
        "mask = mask | (mx.expand_dims(left_padding, (1, 2, 3)) <= rinds)",
    )
    assert found.fate is Fate.KILLED
    assert found.kill.case.startswith("mlx_lm")
    assert "forced" in found.kill.checks


def test_a_change_that_changes_nothing_survives(tried):
    # Of logits with two axes the last is the second.
    found = tried(
        "mlx_lm/generate.py",
        "GenerationBatch._step",
        "logprobs = logits - mx.logsumexp(logits, axis=+1, keepdims=True)",
    )
    assert (found.fate, found.kill) == (Fate.SURVIVED, None)
    assert found.played == 3


def test_a_default_that_no_run_reads_is_unreached(tried):
    found = tried("mlx_lm/generate.py", "BatchGenerator.__init__", "prefill_step_size: int = 2049,")
    assert found.fate is Fate.UNREACHED
    assert found.why.startswith("no run reads this value")


@pytest.mark.nightly
def test_what_crashes_the_batch_is_killed_and_the_next_mutant_is_judged_alike(tried):
    crashing = ("mlx_lm/models/cache.py", "BatchKVCache.update_and_fetch", "prev = None")
    assert tried(*crashing).kill.verdict == "crash"
    test_a_change_that_changes_nothing_survives(tried)


@pytest.mark.nightly
def test_what_single_streams_do_too_is_the_same_in_both(tried):
    found = tried(
        "mlx_lm/sample_utils.py",
        "make_repetition_penalty.repetition_penalty_processor",
        "selected_logits / penalty,",
    )
    assert found.fate is Fate.SAME
    assert "only if the single stream is without it" in found.why
