"""What ``docs/plugins.md`` shows is short, and does what it says; a defect in it is found."""

import re
import types
from pathlib import Path

import pytest
from shared_oracles import shared_store

from conformance.core.engine import Engine
from conformance.core.verdict import Verdict
from conformance.run.registry import build_registry
from conformance.run.selection import Selection, cases
from conformance.run.session import Session
from conformance.tools.smoke import State, smoke

TEXT = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
LADDER = ["repeat", "batch_of_one", "identical", "equal_length", "ragged", "early_finish", "wide"]
LADDER += ["traffic"]


def block(name):
    """The code of the block that is marked with ``name``."""
    return re.search(rf"^```python {name}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)[1]


def lines(code):
    """Lines that are not empty."""
    return [line for line in code.splitlines() if line.strip()]


def plugin(code, name="shown"):
    """A module of the code."""
    module = types.ModuleType(name)
    exec(compile(code, f"{name}.py", "exec"), vars(module))
    return module


FAMILY = plugin(block("family"), "shown_family")
ENGINE = block("engine") + block("hook")


def results(code, family, scenarios=()):
    """Verdicts of the document's engine on a family, by scenario."""
    registry = build_registry([plugin(code), FAMILY])
    session = Session(registry, store=shared_store())
    selection = Selection(("static_batch",), (family,), tuple(scenarios))
    return {case.scenario: session.run(case).verdict for case in cases(registry, selection)}


def test_a_family_takes_less_than_10_lines_and_an_engine_less_than_40():
    assert len(lines(block("family"))) < 10
    assert len(lines(block("engine"))) < 40
    assert max(len(line) for line in lines(block("family") + ENGINE)) <= 100


@pytest.mark.parametrize("family", [pytest.param("llama", marks=pytest.mark.nightly), "my_llama"])
def test_the_engine_climbs_the_ladder(family):
    found = results(ENGINE, family)
    assert list(found) == LADDER
    assert set(found.values()) <= {Verdict.EXACT, Verdict.TIE}


DEFECTS = {
    "padding is attended to": ("BatchKVCache(padding)", "BatchKVCache([0] * len(padding))"),
    "rows leave, their caches stay": ("layer.filter(mx.array(stay))", "pass"),
    "the last token is fed twice": ("self.fed[:, :-1], cache", "self.fed, cache"),
    "the neighbour's token is given out": ("int(own.argmax())", "int(logprobs[0].argmax())"),
}
# By day one shows in tokens alone, and one more with logprobs.
SHOWN = "rows leave, their caches stay"
FOUND = {SHOWN, "padding is attended to"}


@pytest.mark.parametrize(
    "defect",
    [pytest.param(d, marks=[pytest.mark.nightly] * (d not in FOUND)) for d in DEFECTS],
)
def test_a_defect_in_it_is_found(defect):
    right, wrong = DEFECTS[defect]
    assert ENGINE.count(right) == 1
    found = results(ENGINE.replace(right, wrong), "llama", ["ragged", "early_finish"])
    bad = {Verdict.DIVERGED, Verdict.DRIFT, Verdict.CRASH, Verdict.PROTOCOL}
    assert bad & set(found.values())


@pytest.mark.parametrize(
    ("right", "wrong", "state"),
    [
        ("name, library", "name, library", State.FINE),
        ("BatchKVCache(padding)", "BatchKVCache([0] * len(padding))", State.WRONG),
        ("own, None, ended", "own[None], None, ended", State.BROKEN),
        ("s.request.request_id, tokens[-1]", "'nobody', tokens[-1]", State.BROKEN),
    ],
)
def test_smoke_distinguishes_a_broken_adapter_from_a_wrong_engine(right, wrong, state):
    registry = build_registry([plugin(ENGINE.replace(right, wrong))])
    assert smoke(registry, "static_batch", "llama").state is state


def test_all_that_it_declares_is_abstract_in_the_protocol():
    methods = set(re.findall(r"    def (\w+)\(", block("engine")))
    assert methods == set(Engine.__abstractmethods__)


def test_hooks_are_found_in_a_conftest_and_in_a_module_by_dash_p(start, tmp_path):
    (tmp_path / "conftest.py").write_text(ENGINE)
    (tmp_path / "my_family.py").write_text(block("family"))
    options = ["--conformance-engine", "static_batch", "--conformance-family", "my_llama"]
    done = start(
        *("-m", "pytest", "--pyargs", "conformance.suite", "-p", "no:cacheprovider"),
        *("-p", "my_family", *options, "--conformance-scenario", "ragged"),
        PYTHONPATH="",
    )
    assert done.code == 0, done
    assert "OK: 1 case, all as expected" in done.out


TOKENS_ONLY = block("engine") + block("tokens_only")


def tokens_only(code):
    """Verdicts of the document's engine that shows nothing but tokens, by scenario."""
    registry = build_registry([plugin(code)])
    session = Session(registry, store=shared_store())
    selection = Selection(("tokens_only",), ("llama",), ("ragged", "early_finish"), seeds=(0, 1, 2))
    return {session.run(case).verdict for case in cases(registry, selection)}


def test_an_engine_without_logprobs_is_judged_by_its_tokens():
    assert tokens_only(TOKENS_ONLY) <= {Verdict.EXACT, Verdict.TIE}


@pytest.mark.parametrize(
    "defect",
    [pytest.param(d, marks=[pytest.mark.nightly] * (d != SHOWN)) for d in DEFECTS],
)
def test_a_defect_in_it_still_shows_in_tokens(defect):
    assert {Verdict.DIVERGED, Verdict.CRASH} & tokens_only(TOKENS_ONLY.replace(*DEFECTS[defect]))
