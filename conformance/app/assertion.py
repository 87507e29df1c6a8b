"""The assertion for the test suites of other projects.

from conformance import assert_batching_conforms
assert_batching_conforms(model)
"""

from __future__ import annotations

import copy
import dataclasses
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from conformance.backend.modules import config_of, is_module, working_dtype
from conformance.checks.expectations import Expectations, load_expectations
from conformance.core.errors import ConformanceError
from conformance.core.family import Checkpoint, Facts, Family
from conformance.core.missing_library import lacking
from conformance.core.names import did_you_mean
from conformance.core.unavailable import sentences
from conformance.core.verdict import CaseId, CaseResult, Verdict
from conformance.report.message import message_parts
from conformance.run.case_judge import CaseJudge
from conformance.run.hosting import load_plugins
from conformance.run.registry import Registry, build_registry
from conformance.run.selection import Selection, cases
from conformance.run.session import Session
from conformance.run.tiers import WHOLE, Tier
from conformance.run.tiers import tier as tier_of
from conformance.tools.checkpoints.folder import window_of
from conformance.tools.checkpoints.given import Given
from conformance.tools.checkpoints.opening import like_family, open_checkpoint


class KnownDefectsWarning(UserWarning):
    """A model conforms except for known defects of the library, which were accepted."""


@dataclasses.dataclass(frozen=True)
class _Target:
    """What is tested.

    Attributes:
        rerun: options of ``conformance show``; ``None`` if it can't show it.
        mends: cases of accepted defects are played again, mended: not those of a checkpoint on a
            disk, which takes long.
    """

    registry: Registry
    family: str
    dtype: str
    rerun: tuple[str, ...] | None = ()
    mends: bool = True


def assert_batching_conforms(
    model: Any,
    *,
    engine: str = "",
    tier: str = "quick",
    scenarios: Sequence[str] = (),
    dtype: str = "",
    seed: int = 0,
    prompts: Sequence[Sequence[int]] = (),
    cache_dir: Path | None = None,
    known_defects: bool = True,
    plugins: Sequence[str] = (),
) -> tuple[CaseResult, ...]:
    """Assert that ``model`` gives in every kind of batch what its single stream gives.

    Args:
        model: a model of mlx-lm in memory, the path of a checkpoint folder, or a family's name.
            A model in memory is used as it is, and must not be called meanwhile.
        engine: which one decodes it; the library's own batch generator by default.
        tier: how much of the ladder is played: ``quick``, what catches most in seconds, ``default``
            or ``full``, all that the engine can express.
        scenarios: globs of scenarios to play whole, in place of a tier.
        dtype: the model's own by default, float32 for a family.
        seed: of the prompts.
        prompts: token ids of texts that prompts are cut from; drawn from the vocabulary, or for a
            checkpoint the built-in texts, if there are none.
        cache_dir: where single streams of a checkpoint are kept; the user's cache by default.
        known_defects: accept wrong results that are known defects of the installed library; a
            ``KnownDefectsWarning`` names them. With ``False`` they fail, too, and the message names
            the defect. What the library refuses with a message of its own, as an entry declares,
            never fails.
        plugins: modules with hooks that are not installed as plugins, as ``-p`` takes them.

    Returns:
        the result of each case.

    Raises:
        AssertionError: a verdict is not the expected one; says what and where, expected and
            got, the likely cause, and how to run only this again.
        ConformanceError: an argument is not valid, or the model can't be loaded.
    """
    __tracebackhide__ = True  # pytest shows the caller's line
    try:
        wanted = engine or ("mlx_lm" if is_module(model) else "")
        registry = build_registry(load_plugins(plugins), engines=filter(None, [wanted]))
        for line in sentences(registry.unavailable):
            warnings.warn(line, stacklevel=2)
        results = _asserted(
            model,
            registry,
            engine=engine,
            scenarios=tuple(scenarios),
            tier=WHOLE if scenarios else tier_of(tier),
            dtype=dtype,
            seed=seed,
            prompts=prompts,
            cache_dir=cache_dir,
            known=load_expectations(None, registry.expectations),
            accepted=known_defects,
            plugins=tuple(plugins),
        )
    except (AssertionError, ConformanceError) as error:
        failure = error.with_traceback(None)  # frames of this package say nothing to the caller
    else:
        if passed := _passed(results):
            warnings.warn(passed, KnownDefectsWarning, stacklevel=2)
        return results
    failure.__cause__ = failure.__context__ = None
    raise failure


def _asserted(
    model: Any,
    registry: Registry,
    *,
    engine: str,
    scenarios: tuple[str, ...],
    tier: Tier,
    dtype: str,
    seed: int,
    prompts: Sequence[Sequence[int]],
    cache_dir: Path | None,
    known: Expectations,
    accepted: bool,
    plugins: tuple[str, ...],
) -> tuple[CaseResult, ...]:
    """The results; an ``AssertionError`` if one of them is not as wanted."""
    if is_module(model):
        target = _in_memory(registry, model, engine or "mlx_lm", prompts)
    elif str(model) in {name for _, name in registry.families}:
        target = _named(registry, str(model), engine)
    else:
        given = Given(Path(model).absolute(), cache=cache_dir)
        target = _on_disk(registry, given, engine, prompts, dtype)
    chosen = (engine,) if engine else _engines(target)
    selection = Selection(
        chosen, (target.family,), scenarios, (dtype or target.dtype,), (seed,), tier=tier
    )
    kind = type(model)
    try:
        session = Session(target.registry, tier=tier)
        judge = CaseJudge(session, known, mends=accepted and target.mends)
        results = [
            judge.judged(case, session.run(case)) for case in cases(target.registry, selection)
        ]
        bad = _bad(results, accepted=accepted)
        if bad:
            bad[0] = judge.diagnosed(CaseId.parse(bad[0].case), bad[0])
    finally:
        if is_module(model):
            model.__class__ = kind  # the meter had replaced its class
    if bad:
        raise AssertionError(_message(bad, target, plugins, known))
    return tuple(results)


def _bad(results: Sequence[CaseResult], *, accepted: bool) -> list[CaseResult]:
    """The results that fail the assertion, those of known defects last.

    What can't be played on this machine conforms to nothing. A model may be right in spite of an
    entry: its user may have repaired it.
    """
    new = [
        result
        for result in results
        if lacking(result.verdict, result.evidence) or not (result.expected or result.verdict.good)
    ]
    return new if accepted else [*new, *filter(_known_wrong, results)]


def _known_wrong(result: CaseResult) -> bool:
    """Whether the result is wrong as a known defect of the library is; a refusal is not."""
    right = result.verdict.good or result.verdict is Verdict.UNSUPPORTED
    return bool(result.known and result.expected and not right)


def _engines(target: _Target) -> tuple[str, ...]:
    """The library's own batch generator: the engine with the name of the library."""
    (library,) = {library for library, name in target.registry.families if name == target.family}
    return (library,)


def _message(
    bad: Sequence[CaseResult], target: _Target, plugins: tuple[str, ...], known: Expectations
) -> str:
    """Five lines about the first, the others by name."""
    first, others = bad[0], [_named_verdict(result) for result in bad[1:]]
    rerun = ""
    if target.rerun is None:
        call = f'assert_batching_conforms(model, engine="{first.engine}", '
        named = f", plugins={list(plugins)}" if plugins else ""
        rerun = f'{call}scenarios=["{first.scenario}"]{named})'
    options = [text for name in plugins for text in ("-p", name)]
    parts = dict(message_parts(first, options=[*options, *(target.rerun or ())], rerun=rerun))
    if others:
        parts["what"] += f"; not as expected, too: {', '.join(others)}"
    if _known_wrong(first):
        parts["cause"] = _known_cause(first, known)
    head = f"{first.verdict}: {first.case}: {parts.pop('where')}"
    return "\n".join([head, *(f"  {label + ':':<10}{text}" for label, text in parts.items())])


def _passed(results: Sequence[CaseResult]) -> str:
    """What passed although it is wrong, and how to let it fail; empty if nothing did."""
    wrong = [result for result in results if _known_wrong(result)]
    if not wrong:
        return ""
    named = ", ".join(map(_named_verdict, wrong))
    return (
        f"passes with known defects of the library: {named}; `conformance show defects ID` "
        "explains one, known_defects=False lets them fail"
    )


def _named_verdict(result: CaseResult) -> str:
    entries = f", known: {result.known}" if _known_wrong(result) else ""
    return f"{result.scenario} ({result.verdict}{entries})"


def _known_cause(result: CaseResult, known: Expectations) -> str:
    """The known defects that a result shows, each with its place and the reason in a sentence."""
    ids = (result.known or "").split(", ")
    said = [
        f"{entry.id} ({entry.at}): {' '.join(entry.why.split()).partition('. ')[0].rstrip('.')}"
        for entry in known.defects
        if entry.id in ids
    ]
    return f"known defect {'; '.join(said)}"


def _in_memory(
    registry: Registry, model: Any, engine: str, prompts: Sequence[Sequence[int]]
) -> _Target:
    """The model as that of a family; its library returns it instead of loading one."""
    (name,) = registry.select_engines((engine,))
    library = registry.libraries[registry.engines[name].library]
    if library.name != "mlx_lm":
        raise ConformanceError(
            f"engine {name!r} decodes models of {library.name}; a model in memory must be one of "
            "mlx-lm (give the path of a checkpoint instead)"
        )
    config = config_of(model)
    module = str(config["model_type"])
    known = like_family(registry, library.name, module)
    facts = Facts(
        library=library.name,
        module=module,
        window=window_of(config),
        positions=known.positions,
        bidirectional_prompt=known.bidirectional_prompt,
    )
    name = re.sub(r"[^\w.+-]+", "_", module)
    real = Checkpoint("", texts=_texts(prompts))
    family = Family(name, facts, dict(config), checkpoint=real)
    holder = copy.copy(library)
    vars(holder)["load"] = lambda _family, *, dtype, seed: model  # noqa: ARG005
    replaced = dataclasses.replace(
        registry,
        libraries={**registry.libraries, library.name: holder},
        families={(library.name, name): family},
    )
    return _Target(replaced, name, working_dtype(model), rerun=None)


def _texts(prompts: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(token) for token in text) for text in prompts if len(text))


def _named(registry: Registry, name: str, engine: str) -> _Target:
    library = registry.engines[engine].library if engine in registry.engines else ""
    found = [key for key in registry.families if key[1] == name and library in ("", key[0])]
    kept = {key: registry.families[key] for key in found[:1]}
    return _Target(dataclasses.replace(registry, families=kept), name, "float32")


def _on_disk(
    registry: Registry, given: Given, engine: str, prompts: Sequence[Sequence[int]], dtype: str
) -> _Target:
    if not given.folder.is_dir():
        near = did_you_mean(given.folder.name, {name for _, name in registry.families})
        raise ConformanceError(
            f"{given.folder}: is neither a family nor a checkpoint's folder{near}"
        )
    chosen, dtypes = (engine,) if engine else (), (dtype,) if dtype else ()
    opened = open_checkpoint(registry, given, chosen, dtypes)
    library = registry.engines[opened.engines[0]].library
    family = opened.registry.families[library, opened.name]
    if prompts and family.checkpoint is not None:
        real = msgspec.structs.replace(family.checkpoint, texts=_texts(prompts))
        family = msgspec.structs.replace(family, checkpoint=real)
    kept = dataclasses.replace(registry, families={(library, opened.name): family})
    return _Target(kept, opened.name, opened.dtype, given.options, mends=False)
