"""Faults of what the generator counts and reports: answers stay right, figures do not."""

from __future__ import annotations

from functools import partial
from typing import Any

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import Patch, after, wrap
from conformance.plugins.mlx_vlm.library_parts import generator_class, prompt_class
from conformance.power.faults.mlx_vlm.tools import mlx_vlm_fault

_fault = partial(
    mlx_vlm_fault,
    fault_class="list misalignment",
    source="mutants of mlx_vlm/generate/ar.py that no check saw",
)


@_fault("G7.output-tokens-counted-by-step", kills=("ragged", "staggered"))
def output_tokens_counted_by_step(hits: Hits) -> Patch:
    """The statistics count a decode step of several rows as one token."""

    def count(result: Any, self: Any, **_: Any) -> Any:
        more = len(result[1]) - 1
        if more > 0:
            hits.hit()
            self._gen_tokens_counter -= more
        return result

    return after(generator_class(), "_next", count)


@_fault("G7.report-of-another-prompt", kills=("ragged", "staggered"))
def report_of_another_prompt(hits: Hits) -> Patch:
    """Prompts prefilled together are reported with each other's lengths."""

    def report(right: Any, self: Any) -> Any:
        lengths = self._prompt_tokens_per_row
        self._prompt_tokens_per_row = lengths[::-1]
        hits.hit_if(lengths != lengths[::-1])
        found = right(self)
        self._prompt_tokens_per_row = lengths
        return found

    return wrap(prompt_class(), "prompt_progress", report)
