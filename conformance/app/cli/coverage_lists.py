"""``conformance show coverage``: the fields that libraries accept, and which schedules set them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from conformance.core.errors import ConformanceError
from conformance.run.field_coverage import State, covered
from conformance.run.largest_values import PLAIN, WITH, LargestValues
from conformance.run.registry import Registry

COVERAGE = "coverage"


def coverage_lists(registry: Registry, engines: Sequence[str]) -> dict[str, Any]:
    """Tables by title: fields of each state, their numbers by place, the largest values played.

    Raises:
        ConformanceError: none of the engines says what its library accepts.
    """
    largest = LargestValues()
    states = covered(registry, engines, largest)
    if not states:
        raise ConformanceError(f"{', '.join(engines)}: no adapter of these says what is accepted")
    whys = {State.SET: "by", State.REVIEWED: "reason", State.GAP: ""}
    lists: dict[str, Any] = {
        f"fields {state}": [
            {"engine": one.engine, "place": one.place, "field": one.field}
            | ({name: one.why} if name else {})
            for one in states
            if one.state is state
        ]
        for state, name in whys.items()
    }
    counts = Counter((one.engine, one.place, one.state) for one in states)
    places = dict.fromkeys((one.engine, one.place) for one in states)
    lists["places"] = [
        {"engine": engine, "place": place}
        | {str(state): counts[engine, place, state] for state in State}
        for engine, place in places
    ]
    lists["largest values"] = [
        {"engine": one.engine, "quantity": one.quantity}
        | {feature: one.values.get(feature) for feature in (PLAIN, *WITH)}
        | {"by": one.by}
        for one in largest.table()
    ]
    return lists
