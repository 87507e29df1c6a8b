"""Turns a request's plain sampler and processor descriptions into mlx-vlm's callables."""

from __future__ import annotations

from typing import Any

from mlx_vlm import sample_utils

from conformance.backend.sampling import ProcessorFn
from conformance.errors import ScheduleError
from conformance.schedule import Processor


def make_processors(processors: tuple[Processor, ...]) -> list[ProcessorFn]:
    """The callables for ``processors``, made by the library.

    Raises:
        ScheduleError: there is no such kind of processor.
    """
    made: list[ProcessorFn] = []
    for processor in processors:
        if processor.kind != "library":
            raise ScheduleError(
                f"mlx_vlm: no processor of kind {processor.kind!r}; there is library"
            )
        arguments: dict[str, Any] = dict(processor.args)
        if "logit_bias" in arguments:  # JSON has no integer keys
            arguments["logit_bias"] = {int(k): v for k, v in arguments["logit_bias"].items()}
        made += sample_utils.make_logits_processors(**arguments)
    return made
