"""Invalid calls of the scheduler: each must raise a clear error and change nothing."""

from vllm_mlx.request import Request, SamplingParams
from vllm_mlx.scheduler import SchedulerConfig

from conformance.core.trace import watched

_NAME = "probe"


def _add(prompt=(5, 6, 7), name=_NAME, **params):
    def call(scheduler):
        scheduler.add_request(Request(name, list(prompt), SamplingParams(**params)))

    return call


def _twice(scheduler):
    name = next(iter(scheduler.requests))
    _add(name=name)(scheduler)


PROBES = {
    "empty_prompt": _add(prompt=()),
    "zero_max_tokens": _add(max_tokens=0),
    "negative_max_tokens": _add(max_tokens=-1),
    "sampler_min_p_over_one": _add(min_p=1.5),
    "sampler_temperature_below_zero": _add(temperature=-1.0),
    "mismatched_name": _twice,
    "zero_prefill_step": lambda _: SchedulerConfig(prefill_step_size=0),
    "zero_completion_batch": lambda _: SchedulerConfig(completion_batch_size=0),
    "negative_prefill_batch": lambda _: SchedulerConfig(prefill_batch_size=-1),
}


def probe(scheduler, kind):
    """Make the invalid call ``kind``; a request that it added is taken out again."""
    try:
        return watched(kind, lambda: PROBES[kind](scheduler), lambda: _state(scheduler))
    finally:
        scheduler.requests.pop(_NAME, None)
        for request in [r for r in scheduler.waiting if r.request_id == _NAME]:
            scheduler.waiting.remove(request)


def _state(scheduler):
    return {
        "requests": sorted(scheduler.requests),
        "waiting": [request.request_id for request in scheduler.waiting],
        "running": sorted(scheduler.running),
    }
