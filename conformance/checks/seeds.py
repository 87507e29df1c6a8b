"""Equal requests with other seeds must draw other tokens.

What a seed draws is compared with the same server's answer alone, which a server that uses a part
of each seed gives in the same way.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from conformance.checks.play import Play
from conformance.core.schedule import Request
from conformance.core.token_choice import OF_SERVER
from conformance.core.verdict import Finding, Verdict

# Answers of fewer tokens may be alike by chance; those of the schedules have three times as many.
_LEAST = 8


def check_seeds(play: Play) -> list[Finding]:
    """``diverged`` for the first two seeds of equal requests that give one answer."""
    trace = play.traces[0]
    alike: dict[bytes, dict[tuple[int, ...], Request]] = defaultdict(dict)
    for request in play.schedule.requests:
        tokens = trace.stream(request.request_id).tokens
        if not _seeded(request) or len(tokens) < _LEAST:
            continue
        first = alike[_but_for_its_seed(request)].setdefault(tokens, request)
        one, other = _seed(first), _seed(request)
        if one != other:
            return [
                Finding(
                    Verdict.DIVERGED,
                    "seeds",
                    f"the seeds {one} and {other} give equal requests one answer of {len(tokens)} "
                    "tokens",
                    schedule=play.schedule.name,
                    mode=trace.mode,
                    request_id=request.request_id,
                    expected="other tokens by another seed",
                    got=f"those of {first.request_id!r}",
                    cause="a part of each seed is used, or the seed of another request",
                )
            ]
    return []


def _seeded(request: Request) -> bool:
    own = request.sampler
    return own is not None and own.kind == OF_SERVER and bool(own.args.get("temperature"))


def _seed(request: Request) -> int | None:
    assert request.sampler is not None
    seed: int | None = request.sampler.args.get("seed")
    return seed


def _but_for_its_seed(request: Request) -> bytes:
    assert request.sampler is not None
    args = {name: value for name, value in request.sampler.args.items() if name != "seed"}
    sampler = msgspec.structs.replace(request.sampler, args=args)
    return msgspec.json.encode(msgspec.structs.replace(request, request_id="", sampler=sampler))
