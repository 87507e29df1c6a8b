"""The scenarios of the ladder, in order."""

from __future__ import annotations

from conformance.scenarios import (
    batch,
    cancel,
    cost,
    join,
    kept,
    media,
    prefix_caching,
    prefix_store,
    quantized,
    request_options,
    solo,
    speculative,
    structured,
)
from conformance.scenarios.scenario import Scenario
from conformance.scenarios.workloads import traffic, traffic_kept, traffic_media, traffic_options

LADDER: tuple[Scenario, ...] = (
    solo.REPEAT,
    solo.RECHUNKED,
    batch.BATCH_OF_ONE,
    batch.IDENTICAL,
    batch.EQUAL_LENGTH,
    batch.RAGGED,
    batch.CHUNKED,
    join.STAGGERED,
    batch.EARLY_FINISH,
    batch.SLOT_REUSE,
    join.WINDOW,
    cancel.CANCELLED,
    media.IMAGES_TOGETHER,
    media.MIXED_MODALITY,
    media.MEDIA_IN_PIECES,
    media.STALE_STATE,
    quantized.QUANTIZED,
    join.PROMPT_CACHE,
    kept.HELD,
    request_options.STOP_SEQUENCES,
    request_options.SAMPLERS,
    structured.STRUCTURED,
    speculative.SPECULATIVE,
    prefix_caching.PREFIX_CACHING,
    kept.KEPT,
    prefix_store.PREFIX_STORE,
    batch.WIDE,
    request_options.INVALID,
    batch.THREADS,
    *cost.COSTS,
    traffic.TRAFFIC,
    traffic_options.TRAFFIC_OPTIONS,
    traffic_kept.TRAFFIC_KEPT,
    traffic_media.TRAFFIC_MEDIA,
)
