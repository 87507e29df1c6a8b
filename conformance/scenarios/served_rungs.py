"""The scenarios about features of servers besides tokens."""

from __future__ import annotations

from conformance.core.engine import Capability
from conformance.core.family import Family
from conformance.core.trace import Trace
from conformance.scenarios import served_features as features
from conformance.scenarios.scenario import Scenario, Witness
from conformance.scenarios.served_clients import reused

_SERVED = frozenset({Capability.SERVED})
_KEEPS = frozenset({Capability.PREFIX_CACHING})


def _takes_images(family: Family) -> str:
    return "" if "image" in family.facts.modalities else "it takes no images"


def _systems_matter(trace: Trace) -> bool:
    """Whether a user's message had different answers because of the system message."""
    first, other, *_ = trace.schedule.requests
    if first.prompt[features.SYSTEM :] != other.prompt[features.SYSTEM :]:
        return False
    one, two = trace.stream(first.request_id).tokens, trace.stream(other.request_id).tokens
    return bool(two) and one != two


def _schema_and_plain(trace: Trace) -> bool:
    """Whether there is an answer to a schema, and one without."""
    ended = [r for r in trace.schedule.requests if trace.stream(r.request_id).finish_reason]
    return {r.asked is not None and r.asked.schema for r in ended} == {True, False}


FEATURES: tuple[Scenario, ...] = (
    Scenario(
        "served_systems",
        392,
        "one system message for many, another one, and more than are kept",
        _SERVED,
        features.systems,
        (
            Witness("answers that differ with it", _systems_matter).shown_in("changed"),
            Witness("a system message that was kept", reused, needs=_KEEPS),
            Witness("one that was kept no longer", features.kept_no_longer, needs=_KEEPS).shown_in(
                "few_kept"
            ),
        ),
    ),
    Scenario(
        "served_image_prefixes",
        394,
        "prompts that differ in their images alone, with the server's prefix cache",
        _SERVED | {Capability.MEDIA, Capability.PREFIX_CACHING},
        features.images,
        (Witness("other tokens because of another image", features.images_matter),),
        applies=_takes_images,
    ),
    Scenario(
        "served_schemas",
        396,
        "answers that must be JSON of a schema, beside plain ones",
        _SERVED | {Capability.SCHEMAS},
        features.schemas,
        (Witness("JSON and plain answers", _schema_and_plain),),
    ),
    Scenario(
        "served_models",
        397,
        "another model, loaded on request, and the first one again",
        _SERVED | {Capability.MODELS},
        features.models,
        (Witness("other tokens of the other model", features.two_models),),
    ),
    Scenario(
        "served_markers",
        398,
        "reasoning and a call of a tool, whose markers are cut by a stream's pieces",
        _SERVED | {Capability.MARKERS},
        features.markers,
        (Witness("an answer with all markers", features.marked),),
    ),
    Scenario(
        "served_adapters",
        399,
        "an adapter on request, another one, and the model without them",
        _SERVED | {Capability.ADAPTERS},
        features.adapters,
        (Witness("other tokens with an adapter", features.with_adapter).shown_in("in_turn"),),
    ),
)
"""From the simplest."""
