"""Tokens that rows draw at random: by the oracle's probabilities, each row and step for itself.

Each test bets against the engine: it multiplies, draw by draw, how much likelier the token is under
a defect than under the oracle's probabilities given the row's own history. For a right engine the
expected value of such a product is 1 whatever the history was, so it exceeds N with a probability
below 1 in N (Ville's inequality). The same holds for averages of products.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from conformance.checks.play import Play
from conformance.checks.sampled import drawable
from conformance.core import numerics
from conformance.core.schedule import Request
from conformance.core.token_choice import RANDOM, Sampler
from conformance.core.trace import Trace
from conformance.core.verdict import Finding, Verdict

# A false alarm of a schedule has a probability below 1 in so many; of a case with three, 3e-7.
ALARM = 1e7
# Equally probable bins of all that could be drawn, from the likeliest tokens to the unlikeliest.
_BINS = 16
# Temperatures that rows might have instead of theirs, as factors.
_TEMPERATURES = (0.5, 0.75, 1.33, 2.0)
# How often a token might depend on an earlier one, or be any.
_SHARES = (0.05, 0.2, 0.6)
# Of the places of draws within their tokens' probabilities.
_SEED = 1
# Instead of a probability of 0, of a token that cannot be drawn.
_LEAST = 1e-100


@dataclass(frozen=True)
class Draw:
    """One token that was drawn.

    Attributes:
        logits: float32 ``[vocab]``, the oracle's logprobs by the temperature, without the tokens
            that the request's options exclude; not normalised.
        share: a random number in 0..1, which places the draw within its token's probability.
        sure: no token is so near a filter's border that the noise decides whether it is left.
        ways: this token's probabilities where XTC excludes tokens at random, if it does at this
            step and if it does not.
    """

    row: str
    token: int
    logits: np.ndarray
    share: float
    sure: bool = True
    ways: tuple[float, ...] = ()

    @property
    def probs(self) -> np.ndarray:
        """The probabilities of all tokens, float64 ``[vocab]``."""
        found = np.exp(self.logits.astype(np.float64) - self.logits.max())
        return np.asarray(found / found.sum())

    @functools.cached_property
    def probability(self) -> float:
        """Of this token; never 0."""
        return max(float(self.probs[self.token]), _LEAST)

    @functools.cached_property
    def sums(self) -> tuple[float, float]:
        """The probability of all tokens with smaller ids, without this token and with it."""
        sums = np.cumsum(probs := self.probs)
        return float(sums[self.token] - probs[self.token]), float(sums[self.token])

    @property
    def place(self) -> float:
        """Its place in the probability of all tokens, the likeliest first; uniform in 0..1."""
        probs, own = self.probs, self.probs[self.token]
        before = (probs > own) | ((probs == own) & (np.arange(len(probs)) < self.token))
        return min(float(probs[before].sum() + self.share * own), 1.0)


def check_draws(play: Play) -> list[Finding]:
    """``diverged`` for each test that the tokens fail which rows drew at random.

    And for the first token of each row that the request's own options exclude.
    """
    trace = play.traces[0]
    if trace.failure is not None or not any(r.random for r in play.schedule.requests):
        return []
    moments, numbered = drawn(play, trace)
    rows: dict[str, list[Draw]] = {}
    for moment in moments:
        for draw in moment:
            rows.setdefault(draw.row, []).append(draw)
    excluded = [found for row in rows.values() if (found := _excluded(play, row)) is not None]
    moments, numbered = (
        [[draw for draw in sequence if draw.sure] for sequence in found]
        for found in (moments, numbered)
    )
    rows = {name: [draw for draw in row if draw.sure] for name, row in rows.items()}
    everything = [draw for moment in moments for draw in moment]
    tests = {
        "tokens are not drawn by the probabilities of their rows": fits(everything, rows.values()),
        "rows do not draw independently of each other": depend(moments),
        "rows do not draw independently of their earlier steps": depend(list(rows.values())),
    }
    if _names(numbered) != _names(moments):
        tests["rows draw as earlier rows drew at the same step of theirs"] = depend(numbered)
    return excluded + [
        Finding(
            Verdict.DIVERGED,
            "draws",
            f"{what}: the {len(everything)} tokens of {len(rows)} rows are 1e{found:.0f} times "
            "likelier otherwise",
            schedule=play.schedule.name,
            mode=trace.mode,
            expected=f"less than 1e{math.log10(ALARM * len(tests)):.1f} times",
            got=f"1e{found:.1f} times",
            cause="random numbers are shared, or a sampler is not the row's own, or is given "
            "something else than the row's logprobs",
        )
        for what, found in tests.items()
        if found > math.log10(ALARM * len(tests))
    ]


def _names(sequences: Iterable[Sequence[Draw]]) -> list[list[str]]:
    return [[draw.row for draw in sequence] for sequence in sequences]


def _excluded(play: Play, row: Sequence[Draw]) -> Finding | None:
    """The first token of a row that has no probability."""
    at = next((i for i, draw in enumerate(row) if not np.isfinite(draw.logits[draw.token])), None)
    if at is None:
        return None
    name, token = row[at].row, row[at].token
    request, allowed = play.schedule.request(name), int(np.isfinite(row[at].logits).sum())
    assert request.sampler is not None
    asked = ", ".join(f"{key} {value:g}" for key, value in request.sampler.args.items())
    return Finding(
        Verdict.DIVERGED,
        "draws",
        f"output token {at} is {token}, which {asked} excludes",
        schedule=play.schedule.name,
        mode=play.traces[0].mode,
        request_id=name,
        step=at,
        row=play.row(play.traces[0], name, at),
        expected=f"one of {allowed} tokens",
        got=f"token {token}",
        cause="the options of a request do not reach its row",
    )


def drawn(play: Play, trace: Trace) -> tuple[list[list[Draw]], list[list[Draw]]]:
    """All draws by the step in which they were made, and by their number in their row.

    Both in the order of rows.

    An engine that reports several tokens of a row in one step has made them one after the other. If
    only one row is reported in each step, as by a server, draws are by their number in their row.
    """
    noise = np.random.default_rng(_SEED)
    random = {r.request_id: r for r in play.schedule.requests if r.random}
    made: dict[str, int] = {}
    moments: dict[tuple[int, int], list[Draw]] = {}
    numbered: dict[int, list[Draw]] = {}
    for step in trace.steps:
        within: dict[str, int] = {}
        for event in step.output.events:
            name = event.request_id
            at, again = made.get(name, 0), within.get(name, 0)
            made[name], within[name] = at + 1, again + 1
            table = play.want[name].logprobs if name in random else None
            if table is not None and at < len(table):
                request, token = random[name], event.token
                logits, sure, ways = _by_chance(play, request, table[at], at, token)
                draw = Draw(name, token, logits, noise.uniform(), sure, ways)
                moments.setdefault((step.index, again), []).append(draw)
                numbered.setdefault(at, []).append(draw)
    by_number = [numbered[at] for at in sorted(numbered)]
    if all(len(moment) == 1 for moment in moments.values()):
        return by_number, by_number
    return [moments[at] for at in sorted(moments)], by_number


def _by_chance(
    play: Play, request: Request, row: np.ndarray, at: int, token: int
) -> tuple[np.ndarray, bool, tuple[float, ...]]:
    """As ``_logits``, where a random number may decide at each step whether XTC excludes tokens."""
    assert request.sampler is not None
    args = request.sampler.args
    share = args.get("xtc_probability", 0.0)
    if not 0 < share < 1:
        return (*_logits(play, request, row, at, token), ())
    without = {name: value for name, value in args.items() if not name.startswith("xtc")}
    found = []
    for own in ({**args, "xtc_probability": 1.0}, without):
        alike = msgspec.structs.replace(request, sampler=Sampler(RANDOM, own))
        found.append(_logits(play, alike, row, at, token))
    probs = [Draw("", token, logits, 0.0).probs for logits, _ in found]
    mixed = share * probs[0] + (1 - share) * probs[1]
    with np.errstate(divide="ignore"):
        logits = np.log(mixed)
    return logits, all(sure for _, sure in found), tuple(float(one[token]) for one in probs)


def _logits(
    play: Play, request: Request, row: np.ndarray, at: int, token: int
) -> tuple[np.ndarray, bool]:
    """What the row's output token ``at`` is drawn by, and whether that is sure.

    The noise is measured only if need be.
    """
    assert request.sampler is not None
    args = request.sampler.args
    temperature = np.float32(args["temp"])
    if len(args) == 1:
        return np.asarray(row / temperature), True
    sampler = Sampler("library", args)
    for envelope in (play.floor, play.envelope):
        full = numerics.FACTOR * float(envelope(request.request_id).full[at])
        left = drawable(sampler, row, full)
        sure = bool((left == drawable(sampler, row, 0.0)).all())
        if args.get("xtc_probability"):  # what ends any answer is never removed
            left[_ends(play)] = True
        if left[token]:
            break
    return np.where(left, row / temperature, -np.inf), sure


def _ends(play: Play) -> list[int]:
    return [sequence[0] for sequence in play.schedule.options.stop if len(sequence) == 1]


def fits(draws: Sequence[Draw], rows: Iterable[Sequence[Draw]]) -> float:
    """Log10 of how much likelier the tokens are by other probabilities than the oracle's.

    Their places are uneven, in all draws or in single rows; the temperature is another one; some
    tokens are any tokens of the vocabulary; or XTC has another probability.
    """
    each = _average([_uneven(row) for row in rows])
    other = _average([_at_temperature(draws, temperature) for temperature in _TEMPERATURES])
    strays = _mixed([1 / len(draw.logits) / draw.probability for draw in draws])
    chances = [_other_chance(draws, way) for way in (0, 1) if any(draw.ways for draw in draws)]
    return _average([_uneven(draws), each, other, strays, *chances])


def _other_chance(draws: Sequence[Draw], way: int) -> float:
    """That XTC excludes tokens at each step, or at none, where a random number is to decide it."""
    ratios = (max(d.ways[way], _LEAST) / d.probability for d in draws if d.ways)
    return sum(map(math.log10, ratios))


def _at_temperature(draws: Sequence[Draw], temperature: float) -> float:
    found = 0.0
    for draw in draws:
        moved = replace(draw, logits=draw.logits / np.float32(temperature))
        found += math.log10(moved.probability / draw.probability)
    return found


def _uneven(draws: Sequence[Draw]) -> float:
    """Averaged over all distributions over the bins, by Jeffreys' prior."""
    bins = [min(int(draw.place * _BINS), _BINS - 1) for draw in draws]
    counts = np.bincount(bins, minlength=_BINS)
    total, half = len(draws), 0.5
    found = sum(math.lgamma(count + half) - math.lgamma(half) for count in counts)
    found += math.lgamma(_BINS * half) - math.lgamma(_BINS * half + total)
    return (found + total * math.log(_BINS)) / math.log(10)


def depend(sequences: Sequence[Sequence[Draw]]) -> float:
    """Log10 of how much likelier the tokens are if they depend on earlier ones of their sequence.

    Some may be copies of the token a fixed number of places before, or of any before; or some may
    be drawn with the same random number as that token, or with the same noise as the token before,
    from probabilities of their own.
    """
    longest = max(map(len, sequences), default=0)
    apart = _average([_mixed(list(_lagged(sequences, lag))) for lag in range(1, longest)])
    number = _average([_mixed(list(_looked_up(sequences, lag))) for lag in range(1, longest)])
    noise = [coupled(*pair) for sequence in sequences for pair in itertools.pairwise(sequence)]
    return _average([apart, number, _mixed(list(_any_before(sequences))), _mixed(noise)])


def one_number(earlier: Draw, draw: Draw) -> float:
    """How much likelier a token is if both draws looked up one number among sums of probabilities.

    That is how mlx 0.32.4 draws (``mx.random.categorical``).
    """
    low, high = max(earlier.sums[0], draw.sums[0]), min(earlier.sums[1], draw.sums[1])
    return max(0.0, high - low) / earlier.probability / draw.probability


def coupled(earlier: Draw, draw: Draw) -> float:
    """How much likelier a token is if both draws took the largest sum of logprob and one noise.

    With Gumbel noise this is a race: token ``l`` comes in at ``E / p[l]`` in one draw and at
    ``E / q[l]`` in the other, with the same exponential ``E``. The integral is over the ratio of
    the two winners' times, between the ratios at which either would have lost.
    """
    p, q = np.maximum(earlier.probs, _LEAST), np.maximum(draw.probs, _LEAST)
    one, other = earlier.token, draw.token
    if one == other:
        return float(1 / (np.maximum(p / p[one], q / q[one]).sum() * p[one] * q[one]))
    least, most = p[other] / q[other], p[one] / q[one]
    if least >= most:
        return 0.0
    order = np.argsort(ratios := p / q)
    order = order[(order != one) & (order != other)]
    rising = ratios[order]
    edges = np.array([least, *rising[(rising > least) & (rising < most)], most])
    passed = np.searchsorted(rising, (edges[1:] + edges[:-1]) / 2)
    slow = p[one] + np.append(np.cumsum(p[order][::-1])[::-1], 0.0)[passed]
    fast = q[other] + np.insert(np.cumsum(q[order]), 0, 0.0)[passed]
    parts = (edges[1:] - edges[:-1]) / (slow + fast * edges[1:]) / (slow + fast * edges[:-1])
    return float(parts.sum())


def _lagged(sequences: Sequence[Sequence[Draw]], lag: int) -> Iterator[float]:
    for sequence in sequences:
        for earlier, draw in zip(sequence, sequence[lag:], strict=False):
            yield (earlier.token == draw.token) / draw.probability


def _looked_up(sequences: Sequence[Sequence[Draw]], lag: int) -> Iterator[float]:
    for sequence in sequences:
        for earlier, draw in zip(sequence, sequence[lag:], strict=False):
            yield one_number(earlier, draw)


def _any_before(sequences: Sequence[Sequence[Draw]]) -> Iterator[float]:
    for sequence in sequences:
        seen: dict[int, int] = {}
        for count, draw in enumerate(sequence):
            if count:
                yield seen.get(draw.token, 0) / count / draw.probability
            seen[draw.token] = seen.get(draw.token, 0) + 1


def _mixed(ratios: Sequence[float]) -> float:
    """Log10 of the product of the ratios, each mixed with 1, averaged over the shares.

    Args:
        ratios: for each draw, its probability with the defect divided by that by the oracle.
    """
    found = np.array(ratios)
    return _average([float(np.log10(1 - share + share * found).sum()) for share in _SHARES])


def _average(logs: Sequence[float]) -> float:
    """Log10 of the average of numbers given by their log10; of none, 0."""
    if not logs:
        return 0.0
    most = max(logs)
    return most + math.log10(sum(10 ** (one - most) for one in logs) / len(logs))
