"""Mutants of cache classes, tried in random sequences of the caches' methods."""

import pytest

from conformance.power.caches.discovery import discover
from conformance.power.mutants.cache_trials import CASE, CacheTrials, classes_for
from conformance.power.mutants.putting_in import PutIn
from conformance.power.mutants.targets import files_of, mutants_in


def mutant(module, function, before, after):
    library = module.partition("/")[0]
    made = mutants_in(files_of(library, (module,)), (function,))
    (found,) = [m for m in made if (m.before, m.after) == (before, after)]
    return found


@pytest.mark.parametrize(
    ("function", "before", "after"),
    [
        # No generator cuts a batch, and none asks whether it could.
        pytest.param(
            *("BatchKVCache.trim", "self._idx -= n", "self._idx += n"), marks=pytest.mark.nightly
        ),
        pytest.param(
            *("BatchKVCache.is_trimmable", "return True", "return False"),
            marks=pytest.mark.nightly,
        ),
        # A known defect raises the same error, but between prepare and finalize.
        ("BatchRotatingKVCache.finalize", "self._lengths = None", 'self._lengths = ""'),
    ],
)
def test_what_no_generator_calls_is_detected(function, before, after):
    said = []
    found = mutant("mlx_lm/models/cache.py", function, before, after)
    kill = CacheTrials(lambda *what: said.append(what)).kill(found, PutIn(found))
    assert kill is not None
    assert (kill.case, kill.schedule) == (CASE, f"mlx_lm.{function.partition('.')[0]}")
    assert [active for _, active in said] == [False, True]


@pytest.mark.nightly
def test_what_changes_nothing_is_not_detected():
    before = "n_steps = (self.step + keys.shape[2] - 1) // self.step"
    after = before.replace("- 1", "+ 1")
    found = mutant("mlx_lm/models/cache.py", "BatchKVCache.update_and_fetch", before, after)
    trials = CacheTrials(lambda *_: None)
    assert trials.kill(found, PutIn(found)) is None


@pytest.mark.parametrize(
    ("module", "function", "names"),
    [
        ("mlx_lm/models/cache.py", "BatchKVCache.trim", {"BatchKVCache"}),
        pytest.param(
            *("mlx_vlm/turboquant.py", "_write_state", {"BatchTurboQuantKVCache"}),
            marks=pytest.mark.nightly,
        ),
        ("mlx_lm/generate.py", "BatchGenerator.remove", set()),
    ],
)
def test_the_classes_that_may_run_it_are_played(module, function, names):
    (found, *_) = mutants_in(files_of(module.partition("/")[0], (module,)), (function,))
    played = [one.name for one in classes_for(found, discover())]
    assert played == [f"{module.partition('/')[0]}.{name}" for name in sorted(names)]


def test_functions_of_all_caches_are_played_in_all_of_their_library():
    (found, *_) = mutants_in(
        files_of("mlx_vlm", ("mlx_vlm/apc_adapters.py",)), ("clone_cache_entry",)
    )
    names = {one.name for one in classes_for(found, discover())}
    assert {"mlx_vlm.BatchKVCache", "mlx_vlm.BatchTurboQuantKVCache"} <= names
    assert not any(name.startswith("mlx_lm.") for name in names)
