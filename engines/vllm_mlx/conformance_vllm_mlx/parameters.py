"""A request's sampler as the engine's own ``SamplingParams``."""

from vllm_mlx.request import SamplingParams

from conformance.core.errors import Unsupported

# Of mlx-lm's ``make_sampler``, by the engine's names for the same.
_NAMES = {"temp": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p"}


def sampling_params(request, sampler, processors):
    """The parameters of a request; greedy where it has no sampler that the engine knows.

    Raises:
        Unsupported: the engine has no parameter for an argument of the sampler.
    """
    found = {"temperature": 0.0, "top_p": 1.0}
    if sampler is not None and sampler.kind in ("library", "compared"):
        if unknown := sorted(set(sampler.args) - set(_NAMES)):
            raise Unsupported(f"vllm_mlx.request.SamplingParams has no {', '.join(unknown)}")
        found |= {_NAMES[name]: value for name, value in sampler.args.items()}
    return SamplingParams(
        max_tokens=request.max_tokens,
        stop_token_ids=[token for stop in request.stop for token in stop],
        logits_processors=processors,
        **found,
    )
