"""The smallest engine: requests wait in a queue and are decoded one after another."""

from collections import deque

import mlx.core as mx
import numpy as np
from mlx_lm.generate import generate_step

from conformance import Capability, Engine, FinishReason, StepOutput, TokenEvent


class OneByOne(Engine):
    """Never makes a batch, so it is right by construction, and slow."""

    name = "one_by_one"
    library = "mlx_lm"
    capabilities = frozenset({Capability.FORCED, Capability.LOGPROBS})

    def __init__(self, model, options):
        self._model, self._options = model, options
        self._rows = deque()  # of (request id, iterator over its events)

    def insert(self, submissions):
        """Queue them; an iterator does no work before its first step."""
        self._rows += [(s.request.request_id, self._decode(s)) for s in submissions]

    def step(self):
        """One token of the first request in the queue."""
        if not self._rows:
            return StepOutput()
        event = next(self._rows[0][1])
        if event.finish_reason is not None:
            self._rows.popleft()
        return StepOutput((event,))

    def remove(self, request_ids):
        """Forget them."""
        self._rows = deque(row for row in self._rows if row[0] not in request_ids)

    def close(self):
        """Forget all."""
        self._rows.clear()

    def _decode(self, submission):
        request, forced = submission.request, iter(submission.forced or ())
        # The library computes one step ahead, past the last token that is given out.
        feed = (lambda _: mx.array([next(forced, 0)])) if submission.forced else None
        tokens = generate_step(
            mx.array(request.prompt),
            self._model,
            max_tokens=request.max_tokens,
            sampler=feed,
            prefill_step_size=self._options.prefill_step_size,
        )
        for count, (token, logprobs) in enumerate(tokens, start=1):
            row = np.array(logprobs.astype(mx.float32))  # [vocab]
            reason = FinishReason.LENGTH if count == request.max_tokens else None
            yield TokenEvent(request.request_id, int(token), row, float(row[token]), reason)
