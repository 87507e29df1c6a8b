"""What a script has no words for, and why a case that fails has none."""

from __future__ import annotations

import enum

from conformance.core.errors import NoScriptError
from conformance.core.options import EngineOptions
from conformance.core.verdict import CaseId
from conformance.reference.subject import Subject
from conformance.tools.repro.calls import unsaid_calls
from conformance.tools.repro.found import Found

LIBRARIES = ("mlx_lm", "mlx_vlm")
"""Those that there are templates for."""

# Engines whose batch the templates play.
_ENGINES = (*LIBRARIES, "mlx_vlm_batch_generate")


class Reason(enum.StrEnum):
    """Why there is no script, in words that all cases of the same obstacle share."""

    RELEASE = "the entry is of other releases or devices"
    DIED = "the library ends the whole process"
    # Judged by a reader of the script: two defects that differ in numbers alone look the same.
    OTHER = "what it shows is another known defect of the same family"
    GREEN = "no case of it fails when it is played once"
    STEPS = "it does not fail when its moments are told by step numbers"
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


def refuse_case(subject: Subject, case: CaseId) -> None:
    """See, before anything is played, that a script could hold the case's model and engine.

    Raises:
        NoScriptError: it could not.
    """
    if subject.library.name not in LIBRARIES or case.engine not in _ENGINES:
        words = f"a script has no words for the engine {case.engine}"
        raise NoScriptError(f"{case}: {words}", Reason.ENGINE)
    if subject.family.checkpoint is not None:
        words = "a real checkpoint's weights cannot be said in a script"
        raise NoScriptError(f"{case}: {words}", Reason.CHECKPOINT)


def refuse(found: Found) -> None:
    """See that nothing is asked that the templates have no words for.

    Raises:
        NoScriptError: names what.
    """
    if found.model_file and any(found.processed.values()):
        words = "the tower that sees is the project's own, in a file of its own"
        raise NoScriptError(f"{found.case}: {words}", Reason.FILE)
    if found.packed:
        raise NoScriptError(f"{found.case}: its parameters are packed", Reason.PACKED)
    if found.schedule.options.drafting is not None:
        words = "a drafter has weights and files of its own"
        raise NoScriptError(f"{found.case}: {words}", Reason.DRAFTER)
    if named := [what for what, is_so in _unsaid(found).items() if is_so]:
        words = f"a script has no words for {', '.join(named)}"
        raise NoScriptError(f"{found.case}: {words}", f"no words for {', '.join(named)}")


def _unsaid(found: Found) -> dict[str, bool]:
    schedule, requests = found.schedule, found.requests
    told = schedule.options != EngineOptions(
        prefill_step_size=schedule.options.prefill_step_size,
    )
    processors = [one for request in requests for one in request.processors]
    return {
        **{f"the invalid call {kind}": True for kind in unsaid_calls(found)},
        "weighed memory": schedule.weigh is not None and not found.kind.weighed,
        "another thread": schedule.decode_on_other_thread,
        "a cache to go on from": any(r.continues for r in requests),
        "prompts in given segments": any(r.segments for r in requests),
        "samplers": any(r.sampler for r in requests),
        "logits processors": any(one.kind != "library" for one in processors)
        or bool(processors and found.library == "mlx_lm"),
        "stop sequences": any(r.stop for r in requests),
        "options of prompts that are embedded together": bool(found.joined) and told,
    }
