"""The free run: the engine chose its tokens, which must be the oracle's except after a tie."""

from __future__ import annotations

from conformance.checks.forced import measure, other_history
from conformance.checks.play import Play
from conformance.checks.sampled import drawable
from conformance.core import numerics
from conformance.core.trace import Mode, Trace
from conformance.core.verdict import Finding, Verdict

_ALIKE = (
    "the logprobs are the single stream's to the bit: of equally likely tokens the batch takes "
    "another than the single stream"
)
_BEHIND = (
    "another token is likelier by the logprobs that come with this one: it was chosen from others, "
    "or in another dtype"
)


def check_free(play: Play) -> list[Finding]:
    """``tie`` or ``diverged`` for each request with a different token, by the first such token.

    It is a tie if the oracle's logprob of this token is below that of its own token by no more than
    rounding may move (``FACTOR`` times the noise, for both tokens), and all logprobs up to there,
    if the engine declares any, are within noise. With a sampler, its filters must also leave the
    token (``drawn``). A greedy token must be the likeliest by the logprobs that come with it, and
    these must differ from the oracle's: of equally likely tokens both take the same.
    """
    return [
        finding
        for trace in play.traces[:2]
        if trace.mode is Mode.FREE
        for request in play.schedule.requests
        if (finding := _first_difference(play, trace, request.request_id)) is not None
    ]


def _first_difference(play: Play, trace: Trace, name: str) -> Finding | None:
    got, want = trace.stream(name), play.want[name]
    pairs = zip(got.tokens, want.tokens, strict=False)
    step = next((i for i, (mine, theirs) in enumerate(pairs) if mine != theirs), None)
    request = play.schedule.request(name)
    if step is None or other_history(play, trace, name):
        return None
    assert want.logprobs is not None
    found = measure(play, trace, name)
    noise = found[1] if found is not None and found[1].usual else play.envelope(name)
    margin = float(numerics.margins(want.logprobs[step : step + 1])[0])
    allowed = 2 * numerics.FACTOR * float(noise.top[step])
    row, mine = want.logprobs[step], got.tokens[step]
    # Another pair may be as close: this token itself must be.
    near = margin <= allowed and float(row[want.tokens[step]] - row[mine]) <= allowed
    behind = alike = False
    if request.sampler is not None:
        # A sampled token depends on sums inside the sampler: a tie needs a changed logprob, or two
        # equal ones, which a sort may put in either order.
        moved = found is not None and found[0].difference[step] > 0
        same = row[mine] == row[want.tokens[step]]
        full = numerics.FACTOR * float(noise.full[step])
        near = (moved or bool(same)) and bool(drawable(request.sampler, row, full, step)[mine])
    elif got.logprobs is not None and request.budget is None:
        behind = bool(got.logprobs[step, mine] < got.logprobs[step].max())
        alike = bool((got.logprobs[step] == row).all())
    said = [play.word(token) for token in (mine, want.tokens[step])]
    what = f"output token {step} is {mine}, the single stream has {want.tokens[step]}"
    if all(said):
        what = f"word {step} is {said[0]!r}, alone it is {said[1]!r}"
    cause = (_BEHIND if behind else _ALIKE if alike else "") if near else ""
    tie = near and not cause and (found[0].within_noise if found else not play.full_logprobs)
    return Finding(
        Verdict.TIE if tie else Verdict.DIVERGED,
        "free",
        f"{what} with a margin of {margin:.3g} nats",
        schedule=play.schedule.name,
        mode=trace.mode,
        request_id=name,
        step=step,
        row=play.row(trace, name, step),
        expected=f"token {want.tokens[step]}",
        got=f"token {got.tokens[step]}",
        margin=margin,
        difference=float(found[0].difference[step]) if found is not None else None,
        noise=float(noise.top[step]),
        ratio=float(found[0].ratio.max()) if found is not None else None,
        cause=cause,
    )
