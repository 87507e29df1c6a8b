"""The engines' invalid calls as Python code."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.tools.repro.found import Found

_SIZES = {
    "zero_completion_batch": "completion_batch_size=0, prefill_batch_size=0",
    "negative_prefill_batch": "prefill_batch_size=-1",
    "negative_prefill_step": "prefill_step_size=-1",
    "zero_prefill_step": "prefill_step_size=0",
    "unknown_kv_scheme": "kv_bits=8, kv_quant_scheme='no such scheme'",
}
_OF_TWO = {
    "mismatched_max_tokens": "max_tokens=[4]",
    "mismatched_samplers": "samplers=[None]",
    "mismatched_processors": "logits_processors=[[], [], []]",
    "mismatched_caches": "caches=[None]",
    "mismatched_all_tokens": "all_tokens=[[], [], []]",
    "zero_max_tokens": "max_tokens=[4, 0]",
    "negative_max_tokens": "max_tokens=[4, -1]",
}
# Arguments of samplers that are refused only when the sampler is called.
_FILTERS = {
    "sampler_top_k_of_all": "top_k=8",
    "sampler_top_k_of_half_a_token": "top_k=1.5",
    "sampler_min_p_over_one": "min_p=1.5",
    "sampler_min_p_below_zero": "min_p=-0.5",
    "sampler_min_tokens_zero": "min_p=0.5, min_tokens_to_keep=0",
    "sampler_min_tokens_of_half": "min_p=0.5, min_tokens_to_keep=1.5",
    "sampler_xtc_threshold_over_half": "xtc_probability=0.5, xtc_threshold=0.6",
    "sampler_xtc_threshold_below_zero": "xtc_probability=0.5, xtc_threshold=-0.1",
    "sampler_xtc_probability_over_one": "xtc_probability=1.5",
}
# In mlx-vlm each prompt is passed with embeddings; `embeds(n)` makes them for n tokens.
_EMBEDDED = {
    "mismatched_prompt_kwargs": "[[5, 6, 7], [5, 6]], max_tokens=2, prompt_kwargs=[embeds(3)]",
    "mismatched_embeddings": "[[5, 6, 7], [5, 6]], max_tokens=2, "
    "prompt_kwargs=[embeds(3), embeds(7)]",
    "empty_prompt": "[[5, 6, 7], []], max_tokens=2, prompt_kwargs=[embeds(3), embeds(0)]",
}

CALLS: Mapping[str, Mapping[str, str]] = {
    "mlx_lm": {
        **{
            name: f"BatchGenerator(generator.model, {arguments})"
            for name, arguments in _SIZES.items()
        },
        **{
            name: f"generator.insert([[5, 6, 7], [8, 9]], {arguments})"
            for name, arguments in _OF_TWO.items()
        },
        **{
            name: f"sample_utils.make_sampler(temp=1.0, {arguments})(mx.zeros((2, 8)))"
            for name, arguments in _FILTERS.items()
        },
        "sampler_penalty_below_zero": "sample_utils.make_logits_processors(repetition_penalty=-1)",
        "empty_prompt": "generator.insert([[5, 6, 7], []])",
        "unknown_uid": "generator.remove([1000003])",
    },
    "mlx_vlm": {
        **{
            name: f"BatchGenerator(generator.model, processor, {arguments})"
            for name, arguments in _SIZES.items()
        },
        **{
            name: f"generator.insert([[5, 6, 7], [5, 6]], {arguments}, "
            "prompt_kwargs=[embeds(3), embeds(2)])"
            for name, arguments in _OF_TWO.items()
        },
        **{name: f"generator.insert({arguments})" for name, arguments in _EMBEDDED.items()},
        "unknown_uid": "generator.remove(1000003)",
    },
}
"""A call of the ``generator`` that must raise, for each library and kind of probe."""


def calls_of(found: Found) -> dict[str, str]:
    """The code of each invalid call in the schedule."""
    return {p.kind: CALLS[found.library][p.kind] for p in found.schedule.probes}


def unsupported_calls(found: Found) -> list[str]:
    """The kinds of the schedule's invalid calls for which there is no code."""
    return [p.kind for p in found.schedule.probes if p.kind not in CALLS[found.library]]
