"""Which cases a selection is made of, and in which order."""

from dataclasses import replace

import pytest
from miniatures.library import ToyLibrary
from miniatures.right import AllAtOnce, ContinuousBatching

from conformance.core.engine import Capability
from conformance.core.errors import ConformanceError
from conformance.core.family import Facts, Family
from conformance.core.verdict import CaseId
from conformance.run.family_seconds import FamilySeconds
from conformance.run.registry import Registry
from conformance.run.selection import Selection, Shard, cases
from conformance.run.tiers import Tier
from conformance.scenarios import LADDER

OTHER = type("Other", (ContinuousBatching,), {"name": "other", "library": "other"})


def narrowed(scenario):
    """As it is, but for ``slot_reuse``, which has no meaning for one of the families."""
    if scenario.name != "slot_reuse":
        return scenario
    return replace(scenario, applies=lambda f: "it is narrow" if f.name == "mamba" else "")


def registry():
    engines = (ContinuousBatching, AllAtOnce, OTHER)
    families = {
        (library, name): Family(name, Facts(library=library), {"vocab_size": 8})
        for library, name in (("toy", "llama"), ("toy", "mamba"), ("other", "gemma"))
    }
    return Registry(
        libraries={"toy": ToyLibrary()},
        families=families,
        engines={engine.name: engine for engine in engines},
        scenarios={scenario.name: narrowed(scenario) for scenario in LADDER},
        faults={},
        plugins=(),
    )


def select(**globs):
    return [str(case) for case in cases(registry(), Selection(**{"engines": (), **globs}))]


def test_globs_choose_each_part():
    assert select(
        engines=("right",),
        families=("ll*",),
        scenarios=("r?gged",),
        dtypes=("float16",),
        seeds=(3,),
    ) == ["right/llama/ragged/float16/3"]


def test_cases_of_a_family_come_together_and_scenarios_in_ladder_order():
    found = select(engines=("right", "all_at_once"), scenarios=("wide", "identical"), seeds=(0, 1))
    assert found[:4] == [
        "right/llama/identical/float32/0",
        "right/llama/wide/float32/0",
        "right/llama/identical/float32/1",
        "right/llama/wide/float32/1",
    ]
    assert [case.split("/")[1] for case in found] == ["llama"] * 8 + ["mamba"] * 8


def test_a_family_gets_only_scenarios_that_apply_to_it():
    found = select(engines=("right",), scenarios=("ragged", "slot_reuse"))
    assert "right/mamba/slot_reuse/float32/0" not in found
    assert found[-1] == "right/mamba/ragged/float32/0"
    assert "right/llama/slot_reuse/float32/0" in found


def test_if_nothing_that_was_selected_applies_the_reason_is_reported():
    with pytest.raises(ConformanceError, match="right/mamba/slot_reuse: it is narrow"):
        select(engines=("right",), families=("mamba",), scenarios=("slot_reuse",))
    with pytest.raises(ConformanceError, match="all_at_once/llama/cancelled: the engine lacks"):
        select(engines=("all_at_once",), families=("llama",), scenarios=("cancelled",))


@pytest.mark.parametrize(
    "globs",
    [
        {"engines": ("vllm*",)},
        {"families": ("gemma",), "engines": ("right",)},
        {"scenarios": ("raged",)},
    ],
)
def test_a_glob_that_matches_nothing_is_an_error(globs):
    with pytest.raises(ConformanceError):
        select(**globs)


UNKNOWN = FamilySeconds({})


def family_of(text):
    return text.split("/")[0]


def test_shards_share_out_groups_evenly_and_keep_the_order():
    items = [f"f{n}/{part}" for n in (3, 1, 7, 5, 2, 6, 4) for part in "ba"]
    parts = [Shard(number, 3).of(items, family_of, UNKNOWN) for number in (1, 2, 3)]
    assert sorted(item for part in parts for item in part) == sorted(items)
    assert [len(part) for part in parts] == [6, 4, 4]
    assert parts[0] == ("f1/b", "f1/a", "f7/b", "f7/a", "f4/b", "f4/a")
    assert Shard(8, 8).of(items, family_of, UNKNOWN) == ()


def test_a_shard_has_few_families_where_they_take_long():
    items = [f"f{n}" for n in range(6)]
    seconds = FamilySeconds({"f0": 10.0, "f1": 10.0, "f2": 5.0, "f3": 5.0, "f4": 5.0, "f5": 5.0})
    parts = [Shard(number, 2).of(items, family_of, seconds) for number in (1, 2)]
    assert parts == [("f0", "f2", "f4"), ("f1", "f3", "f5")]
    late = FamilySeconds({**seconds.recorded, "f5": 40.0})
    parts = [Shard(number, 2).of(items, family_of, late) for number in (1, 2)]
    assert parts == [("f5",), ("f0", "f1", "f2", "f3", "f4")]


def test_a_shard_as_text():
    assert Shard.parse("") == Shard(1, 1)
    assert Shard.parse("2/12") == Shard(2, 12)


@pytest.mark.parametrize(
    "text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2", "1/2/3", "\u00b2/2", " 1/2", "1/99999"]
)
def test_a_shard_that_makes_no_sense(text):
    with pytest.raises(ConformanceError, match=f"--shard: {text!r} is not K/N"):
        Shard.parse(text)


def test_what_is_about_the_whole_is_the_first_shard_s():
    assert [Selection(shard=Shard(n, 2)).leads for n in (1, 2)] == [True, False]
    assert not Selection(shard=Shard(1, 2)).whole
    assert Selection().whole
    assert not Selection(families=("x",)).leads


@pytest.mark.parametrize(
    ("tier", "half", "more"),
    [("default", True, ["float16", "bfloat16"]), ("default", False, []), ("quick", True, [])],
)
def test_families_that_represent_a_kind_run_some_scenarios_in_half_precision(tier, half, more):
    facts = Facts(library="mlx_lm")
    families = {("mlx_lm", n): Family(n, facts, {"vocab_size": 8}) for n in ("llama", "phi")}
    own = type("Own", (ContinuousBatching,), {"name": "own", "library": "mlx_lm"})
    found = replace(registry(), families=families, engines={"own": own})
    asked = Selection(engines=(), scenarios=("traffic", "ragged"), tier=Tier(tier), half=half)
    dtypes = {(c.family, c.scenario, c.dtype) for c in cases(found, asked)}
    assert {c for c in dtypes if c[2] != "float32"} == {("llama", "traffic", d) for d in more}
    assert ("phi", "traffic", "float32") in dtypes


@pytest.mark.parametrize(("started_here", "groups"), [(True, 2), (False, 1)])
def test_each_scenario_of_a_server_that_the_run_starts_is_a_group(started_here, groups):
    """One at an address is asked by one worker alone: what it counts would else be of two cases."""
    given = {"capabilities": frozenset({Capability.SERVED}), "elsewhere": not started_here}
    found = registry()
    found.engines["server"] = type("Server", (ContinuousBatching,), {"name": "server", **given})
    cases = [CaseId("server", "llama", scenario, "float32", 0) for scenario in ("a", "b")]
    assert len({found.group_of(case) for case in cases}) == groups


def test_engines_of_a_library_share_a_family_s_group():
    cases = [CaseId(engine, "llama", "wide", "float32", 0) for engine in ("right", "all_at_once")]
    assert {registry().group_of(case) for case in cases} == {"toy/llama"}
