"""A right continuous-batching engine on the toy model, and one that shows as little as it may."""

from dataclasses import dataclass, field

from conformance.core.engine import Capability, Engine
from conformance.core.schedule import Request, Stage
from conformance.core.trace import CachedLayer, FinishReason, ProbeResult, StepOutput, TokenEvent
from miniatures.choosing import Chooser

PROBES = (
    "mismatched_samplers",
    "empty_prompt",
    "sampler_top_k_of_all",
    "unknown_uid",
    "zero_completion_batch",
)


@dataclass
class Row:
    """One request at work: ``fed`` is its cache, ``todo`` are tokens not yet seen by the model."""

    request: Request
    chooser: Chooser
    fed: list[int]
    todo: list[int]
    produced: list[int] = field(default_factory=list)

    @property
    def name(self):
        return self.request.request_id


class ContinuousBatching(Engine):
    """A step decodes all rows that decode, then feeds one piece of the prompts in prefill.

    What can go wrong is a method of its own, so that an engine that is wrong overrides one.
    """

    name = "right"
    library = "toy"
    capabilities = frozenset(Capability) - {
        Capability.COMPLETIONS,
        Capability.SERVED,
        Capability.SPECULATIVE,
        Capability.PREFIX_CACHING,
        Capability.STORED,
        Capability.POOLED,
        Capability.TENANTS,
        Capability.WEIGHED,
    }

    def __init__(self, model, options):
        self.model = model
        self.options = options
        self.queue: list[Row] = []
        self.prefill: list[Row] = []
        self.decode: list[Row] = []
        self.done: dict[str, list[int]] = {}
        self.closed = False

    def insert(self, submissions):
        self.queue += [self.row(submission) for submission in submissions]

    def row(self, submission):
        request = submission.request
        chooser = Chooser(request, submission.forced)
        return Row(request, chooser, list(submission.prefix or ()), list(request.prompt))

    def step(self):
        events = self.decode_step() if self.decode else []
        self.admit()
        processed = {}
        self.start_decoding(processed)
        self.prefill_step(processed)
        return StepOutput(tuple(events), processed)

    def decode_step(self):
        for row in self.decode:
            row.fed += row.todo
        logits = self.forward(self.decode, 1)
        events, ended = [], []
        for row, scores in zip(self.decode, logits, strict=True):
            logprobs = self.logprobs(row, scores)
            token = row.chooser.token(logprobs)
            row.todo = [token]
            row.produced.append(token)
            reason = self.reason(row)
            events += self.emit(row, token, logprobs, reason)
            if reason is not None:
                ended.append(row)
        self.leave(ended)
        return events

    def logprobs(self, row, scores):
        return row.chooser.logprobs(row.fed, scores)

    def forward(self, rows, length):
        return self.model(
            [row.fed for row in rows],
            length=length,
            offsets=self.offsets(rows),
            bound=self.options.max_kv_size,
        )

    def offsets(self, rows):
        return [len(row.fed) for row in rows]

    def reason(self, row):
        if any(tuple(row.produced[-len(stop) :]) == stop for stop in row.request.stop):
            return FinishReason.STOP
        return FinishReason.LENGTH if len(row.produced) == row.request.max_tokens else None

    def emit(self, row, token, logprobs, reason):
        return [TokenEvent(row.name, token, logprobs, float(logprobs[token]), reason)]

    def leave(self, ended):
        for row in ended:
            self.done[row.name] = row.fed + row.todo
        self.decode = [row for row in self.decode if row not in ended]

    def admit(self):
        """Take from the queue what fits into a prefill batch and into the slots."""
        free = self.options.completion_batch_size - len(self.decode) - len(self.prefill)
        count = max(0, min(self.options.prefill_batch_size - len(self.prefill), free))
        self.prefill += self.queue[:count]
        del self.queue[:count]

    def start_decoding(self, processed):
        ready = [row for row in self.prefill if len(row.todo) == 1]
        self.prefill = [row for row in self.prefill if len(row.todo) > 1]
        for row in ready:
            processed[row.name] = 1
        self.decode += ready

    def prefill_step(self, processed):
        if not self.prefill:
            return
        length = min(self.piece(), max(len(row.todo) - 1 for row in self.prefill))
        for row in self.prefill:
            piece = row.todo[: min(length, len(row.todo) - 1)]
            row.todo = row.todo[len(piece) :]
            self.feed(row, piece, padding=length - len(piece))
            processed[row.name] = processed.get(row.name, 0) + len(piece)
        self.forward(self.prefill, length)

    def piece(self):
        return self.options.prefill_step_size

    def feed(self, row, piece, *, padding):
        row.fed += piece

    def remove(self, request_ids):
        for name in ("queue", "prefill", "decode"):
            rows = getattr(self, name)
            setattr(self, name, [row for row in rows if row.name not in request_ids])

    def close(self):
        self.closed = True

    def stages(self):
        stages = {row.name: Stage.QUEUED for row in self.queue}
        stages |= {row.name: Stage.PREFILL for row in self.prefill}
        return stages | {row.name: Stage.DECODE for row in self.decode}

    def rows(self):
        return {row.name: index for index, row in enumerate(self.decode)}

    def cache_bytes(self):
        return 4 * sum(len(row.fed) for row in (*self.prefill, *self.decode))

    def layers(self):
        kept = 4 * sum(len(row.fed) for row in self.decode)
        kv = self.options.kv
        return [CachedLayer(kept if kv is None else kept // 4, kv is not None)] if kept else []

    def extract(self, request_id):
        if request_id in self.done:
            return list(self.done[request_id])
        row = next(row for row in self.decode if row.name == request_id)
        return row.fed + row.todo

    def reloaded(self, prefix):
        return list(prefix)

    def probe(self, kind):
        before = self.state()
        error = None
        try:
            self.refuse(kind)
        except Exception as raised:  # noqa: BLE001 - whatever it raises is the result
            error = f"{type(raised).__name__}: {raised}"
        after = self.state()
        changed = tuple(f"{key}: {before[key]} became {after[key]}" for key in before)
        return ProbeResult(kind, error, changed if before != after else ())

    def state(self):
        return {"queue": [row.name for row in self.queue]}

    def refuse(self, kind):
        raise ValueError(f"{kind}: the argument is not valid")

    @classmethod
    def probes(cls):
        return PROBES


class AllAtOnce(ContinuousBatching):
    """One call is one step: no stages, no logprobs but the chosen token's, no cancelling."""

    name = "all_at_once"
    capabilities = frozenset(
        {
            Capability.TOGETHER,
            Capability.CHUNKED,
            Capability.SLOTS,
            Capability.PREFIX,
            Capability.THREADS,
        }
    )

    def step(self):
        events, processed = [], {}
        while self.queue or self.prefill or self.decode:
            output = super().step()
            events += output.events
            for name, count in output.processed.items():
                processed[name] = processed.get(name, 0) + count
        return StepOutput(tuple(events), processed)

    def emit(self, row, token, logprobs, reason):
        chosen = float(logprobs[token])
        return [TokenEvent(row.name, token, None, chosen, reason)]

    def stages(self):
        return {row.name: Stage.QUEUED for row in self.queue}

    def rows(self):
        return {}

    def cache_bytes(self):
        return None
