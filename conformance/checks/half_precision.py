"""Half precision: what the noise of one step hides shows in a batch of one, or in the mean.

In bfloat16 the noise of a step may be 0.3 nats. But on a CPU a batch of one computes what the
single stream computes, in arrays of the same shapes, so that not a bit may differ. Rows of larger
batches have the same bits, too, where products add up in float32: a sum in another order is
rounded to the same number, but for a few. And rounding errors have both signs, so that over many
rows their mean is near zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from conformance.checks.forced import common_steps, other_history
from conformance.checks.play import Play
from conformance.checks.scales import scales_off
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict

# Rows whose errors are independent, at least, and how many standard errors their mean may be from
# zero. Right runs stayed below 2; t of 12 rows exceeds 10 once in a million times.
_ROWS, _MOST = 12, 10.0
# Rows that are compared by their bits, at least, and what part of them may have others. In right
# runs of the tiny families it is a quarter at most, and mostly none; one row of four that is
# rounded in another way is more than a third where eight rows join one by one. In bfloat16 a sum in
# another order is mostly rounded to the same number: of many rows fewer may have others, but of few
# some by chance (two of 13, one of 8, none of 32).
_FEW, _PART = 6, 1 / 3
_PART_OF_MANY, _BY_CHANCE = 1 / 5, 4


def check_half_precision(play: Play) -> list[Finding]:
    """``drift`` if rows are not their single streams to the bit, or if errors have a bias.

    Of a batch of one not a bit may differ; of several rows most must have the same bits.
    """
    if play.dtype == "float32":
        return []
    trace = play.traces[0]
    errors = dict(_errors(play, trace))
    if len(play.schedule.requests) == 1:
        return list(_bits(play, trace, errors))
    return [*_bias(play, trace, errors), *_scaled(play, trace), *_apart(play, trace, errors)]


def _errors(play: Play, trace: Trace) -> Iterator[tuple[str, np.ndarray]]:
    """Signed errors ``[steps]`` of the chosen tokens' logprobs, by request."""
    for request in play.schedule.requests:
        name = request.request_id
        got, want = trace.stream(name), play.want[name]
        steps = common_steps(got, want)
        if not steps or other_history(play, trace, name) or got.token_logprobs is None:
            continue
        assert want.logprobs is not None
        chosen = np.array(got.tokens[:steps])[:, None]
        theirs = np.take_along_axis(want.logprobs[:steps], chosen, axis=-1)[:, 0]
        yield name, np.asarray(got.token_logprobs[:steps] - theirs)


def _bits(play: Play, trace: Trace, errors: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """The first step whose logprobs differ at all."""
    for name in errors:
        got, want = trace.stream(name), play.want[name]
        request, options = play.schedule.request(name), play.schedule.options
        other_shapes = request.continues or request.media or options.kv or options.prefix_caching
        if got.logprobs is None or other_shapes or not play.same_calls:
            continue
        assert want.logprobs is not None
        steps = common_steps(got, want)
        apart = got.logprobs[:steps] != want.logprobs[:steps]
        if apart.any():
            step = int(apart.any(axis=-1).argmax())
            yield Finding(
                Verdict.DRIFT,
                "half_precision",
                f"a batch of one is not its single stream to the bit: {apart[step].sum()} logprobs "
                f"differ at output token {step}",
                schedule=play.schedule.name,
                mode=trace.mode,
                request_id=name,
                step=step,
                expected="the same bits, as the arrays have the same shapes",
                got="other bits, within the noise",
                cause="a cache, a mask or a position has gone through another dtype",
            )


def _bias(play: Play, trace: Trace, errors: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """Errors of one sign, where none is too large by itself. Equal prompts count as one row."""
    rows: dict[tuple[int, ...], list[float]] = {}
    for name, found in errors.items():
        rows.setdefault(play.schedule.request(name).prompt, []).append(float(found.mean()))
    means = np.array([np.mean(row) for row in rows.values()])
    if len(means) < _ROWS or not np.isfinite(means).all():
        return
    off, error = float(means.mean()), float(means.std(ddof=1) / np.sqrt(len(means)))
    if abs(off) > _MOST * error:
        yield Finding(
            Verdict.DRIFT,
            "half_precision",
            f"the chosen tokens' logprobs are {off:+.3g} nats off in the mean of {len(means)} rows",
            schedule=play.schedule.name,
            mode=trace.mode,
            expected=f"rounding errors of both signs: at most {_MOST * error:.3g} nats in the mean",
            got=f"{off:+.6g} nats",
            cause="logits are scaled, or something is added in every row",
        )


def _scaled(play: Play, trace: Trace) -> Iterator[Finding]:
    """The group whose logprobs are furthest off in their scale."""
    found = max(scales_off(play, trace), key=lambda one: abs(one[1]), default=None)
    if found is not None:
        group, off, requests = found
        yield Finding(
            Verdict.DRIFT,
            "half_precision",
            f"logits are {off:+.3%} too large in {group}, in the mean of {requests} requests",
            schedule=play.schedule.name,
            mode=trace.mode,
            expected="rounding errors of both signs",
            got=f"a scale of {1 + off:.6g}",
            cause="logits of some rows or steps are scaled, or summed in another dtype",
        )


def _most(dtype: str, rows: int) -> int:
    """Of so many rows, how many may have other bits."""
    part = _PART * rows
    if dtype == "bfloat16":
        part = max(_PART_OF_MANY * rows, min(part, _BY_CHANCE))
    return int(part)


def _apart(play: Play, trace: Trace, errors: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """More rows than rounding explains have other bits, however small the differences are.

    TurboQuant's kernels for one row are others than for several.
    """
    options = play.schedule.options
    turbo = options.kv is not None and options.kv.scheme == "turboquant"
    if not play.same_products or turbo or options.prefix_caching:
        return
    rows: dict[str, int] = {}
    for name in errors:
        got, want, request = trace.stream(name), play.want[name], play.schedule.request(name)
        if got.logprobs is None or request.continues or request.media:
            continue
        assert want.logprobs is not None
        steps = common_steps(got, want)
        apart = (got.logprobs[:steps] != want.logprobs[:steps]).any(axis=-1)
        rows[name] = int(apart.argmax()) if apart.any() else -1
    moved = {name: step for name, step in rows.items() if step >= 0}
    most = _most(play.dtype, len(rows))
    if len(rows) < _FEW or len(moved) <= most:
        return
    name = next(iter(moved))
    yield Finding(
        Verdict.DRIFT,
        "half_precision",
        f"{len(moved)} of {len(rows)} rows are not their single streams to the bit",
        schedule=play.schedule.name,
        mode=trace.mode,
        request_id=name,
        step=moved[name],
        expected=f"other bits in at most {most} rows",
        got=f"in {len(moved)} rows, within the noise",
        cause="several rows are rounded where one is not, or computed in another dtype",
    )
