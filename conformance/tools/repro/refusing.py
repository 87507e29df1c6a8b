"""Cases for which no script can be written, and the reasons."""

from __future__ import annotations

import enum

from conformance.core.engine import Engine, ReproCalls
from conformance.core.engine_options import EngineOptions
from conformance.core.errors import NoScriptError
from conformance.core.verdict import CaseId
from conformance.reference.subject import Subject
from conformance.tools.repro.calls import unsupported_calls
from conformance.tools.repro.found import Found

LIBRARIES = ("mlx_lm", "mlx_vlm")
"""The libraries with templates."""

# The engines with templates.
_ENGINES = (*LIBRARIES, "mlx_vlm_batch_generate")


class Reason(enum.StrEnum):
    """Why there is no script; the texts are stored in ``expectations/scripts/table.jsonl``."""

    RELEASE = "the entry is of other releases or devices"
    CRASHED = "the library ends the whole process"
    # A reader of the script judges this: defects that differ only in numbers look the same.
    OTHER = "what it shows is another known defect of the same family"
    GREEN = "no case of it fails when it is played once"
    STEPS = "it does not fail when its events happen at step numbers"
    LONG = "it would be longer than 60 lines"
    DRAWN = "it does not show with the weights and pixels that a script draws"
    ENGINE = "no words for its engine"
    FILE = "the vision tower is the project's own small one, the library's is too large"
    CHECKPOINT = "the weights are a real checkpoint's"
    LOADING = "the library fails while it loads the checkpoint, so that nothing is decoded"
    BEFORE = "the library fails before anything is played, where the heads' sizes are looked at"
    PACKED = "no words for packed parameters"
    PROCESSOR = "the processor itself fails, which is made from a tokenizer's files"
    MEDIA = "what the processor gives is no pixels and too long to write down"
    DRAFTER = "a second model drafts, from files of its own"


def refuse_case(subject: Subject, case: CaseId, engine: type[Engine]) -> None:
    """Check, before running anything, that a script can use the case's model and engine.

    Raises:
        NoScriptError: no script can.
    """
    if message := _no_engine(subject.library.name, engine):
        raise NoScriptError(f"{case}: {message}", Reason.ENGINE)
    if subject.family.checkpoint is not None:
        message = "a script cannot hold a real checkpoint's weights"
        raise NoScriptError(f"{case}: {message}", Reason.CHECKPOINT)


def _no_engine(library: str, engine: type[Engine]) -> str:
    """Why no script can drive the engine, and what its author can do; empty if a script can."""
    if engine.name in _ENGINES and library in LIBRARIES:
        return ""
    if engine.opinion or library not in LIBRARIES:
        return f"a script has no words for the engine {engine.name}"
    if engine.repro_calls() is None:
        return (
            f"a script does not know the calls of the engine {engine.name}: implement the class "
            f"method repro_calls() of {engine.__name__}, which gives a ReproCalls (docs/plugins.md)"
        )
    if library != "mlx_lm":
        return f"engines of other packages have scripts for models of mlx_lm only, not of {library}"
    return ""


def refuse(found: Found) -> None:
    """Check that the templates support everything in ``found``.

    Raises:
        NoScriptError: they do not; names the unsupported part.
    """
    if found.model_file and any(found.processed.values()):
        message = "the vision tower is the project's own, in a separate file"
        raise NoScriptError(f"{found.case}: {message}", Reason.FILE)
    if found.packed:
        raise NoScriptError(f"{found.case}: its parameters are packed", Reason.PACKED)
    if found.schedule.options.drafting is not None:
        message = "a drafter has weights and files of its own"
        raise NoScriptError(f"{found.case}: {message}", Reason.DRAFTER)
    if named := [what for what, is_so in _unsupported(found).items() if is_so]:
        message = f"a script has no words for {', '.join(named)}"
        raise NoScriptError(f"{found.case}: {message}", f"no words for {', '.join(named)}")


def _unsupported(found: Found) -> dict[str, bool]:
    schedule, requests = found.schedule, found.requests
    changed = schedule.options != EngineOptions(
        prefill_step_size=schedule.options.prefill_step_size,
    )
    processors = [one for request in requests for one in request.processors]
    return {
        **(_undriven(found, found.driven) if found.driven is not None else {}),
        **{f"the invalid call {kind}": True for kind in unsupported_calls(found)},
        "weighed memory": schedule.weigh is not None and not found.kind.weighed,
        "another thread": schedule.decode_on_other_thread,
        "models beside each other": schedule.beside_models,
        "a cache to go on from": any(r.continues for r in requests),
        "prompts in given segments": any(r.segments for r in requests),
        "the engine's own sampler or processors": schedule.options.sampler is not None
        or bool(schedule.options.processors),
        "samplers": any(r.sampler for r in requests),
        "thinking budgets": any(r.budget for r in requests),
        "logits processors": any(one.kind != "library" for one in processors)
        or bool(processors and found.library == "mlx_lm"),
        "stop sequences": any(r.stop for r in requests),
        "options of prompts that are embedded together": bool(found.joined) and changed,
    }


def _undriven(found: Found, calls: ReproCalls) -> dict[str, bool]:
    """The features that the calls of an engine from another package do not cover."""
    schedule = found.schedule
    options = schedule.options != EngineOptions() and "options" not in calls.construct
    return {
        "removals, as repro_calls() has none": bool(schedule.removals) and not calls.remove,
        "options, as the construction of repro_calls() has none": options,
        "quantized caches": schedule.options.kv is not None,
        "a prefix cache": schedule.options.prefix_caching is not None,
        "invalid calls": bool(schedule.probes),
        "memory": bool(found.kind.weighed),
    }
