"""The workload ``traffic_kept``: prefixes kept, cut, given up and reused while rows decode.

Near twins differ from a kept sequence in one token, where a key could miss it: the last of a block,
of a piece or of the sequence.
"""

from __future__ import annotations

from conformance.core.engine import Capability
from conformance.core.engine_options import EngineOptions, PrefixCaching
from conformance.core.family import Family
from conformance.core.schedule import Continuation, Removal, Request, Schedule, Stage
from conformance.core.trace import Trace
from conformance.scenarios import foreseen
from conformance.scenarios import reuse_witnesses as reuse
from conformance.scenarios.build import begun_otherwise, gone, produced, text_request, together
from conformance.scenarios.choices import Choices, Seeded
from conformance.scenarios.lengthy import if_it_fits
from conformance.scenarios.scenario import Brief, Scenario, Witness

_BLOCK = 4
_LASTING = 48
# Longer than twice what caches grow by, and than a window that has slid many times.
_SHARED = 130 * _BLOCK
# Keys that caches grow by, and a part of them: sizes at which a prefix may be off by one.
_GROWTH, _PART = 256, 64
# Tokens of a piece of a long prompt.
_PIECE = 128
_WAVES = 4


class _Texts:
    """Makes prompts that share a part of earlier ones, and nothing more by chance."""

    def __init__(self, brief: Brief, choices: Choices, options: EngineOptions) -> None:
        self.brief, self.choices, self.options = brief, choices, options
        self.made: list[Request] = []
        self.kept: list[tuple[int, ...]] = []

    def add(self, prompt: tuple[int, ...], limit: int, cut: int = 0) -> Request:
        """A request; its cache is kept after the first ``cut`` tokens, too, where engines can."""
        pieces = (cut, len(prompt) - cut)
        whole = not cut or Capability.SEGMENTS not in self.brief.capabilities
        name = f"r{len(self.made)}"
        request = Request(name, prompt, limit, segments=() if whole else pieces)
        self.made.append(request)
        self.kept.append(self.whole(request))
        return request

    def whole(self, request: Request) -> tuple[int, ...]:
        """Its prompt and its output."""
        return request.prompt + self.brief.solo(request, self.options).tokens

    def other(self, length: int, limit: int, cut: int = 0) -> Request:
        """A prompt that begins like no other."""
        return self.add(self.own((), length), limit, cut)

    def own(self, begun: tuple[int, ...], length: int) -> tuple[int, ...]:
        """``begun`` and ``length`` tokens of which the first follows it nowhere else."""
        after = {
            kept[len(begun)]
            for kept in self.kept
            if len(kept) > len(begun) == foreseen.common(begun, kept)
        }
        tokens = self.brief.prompt(length, variant=len(self.made))
        return begun + begun_otherwise(self.brief, tokens, after)

    def twin(self, sequence: tuple[int, ...], place: int) -> tuple[int, ...]:
        """``sequence`` with another token at ``place``."""
        changed = self.own(sequence[:place], 1)
        return changed + sequence[place + 1 :]

    def alike(self, sequence: tuple[int, ...], place: int) -> tuple[int, ...]:
        """As ``twin``, where the vocabulary allows with a token of the same last seven bits."""
        low, high = self.brief.tokens
        alike = sequence[place] ^ 0x80
        if not low <= alike < high:
            return self.twin(sequence, place)
        return (*sequence[:place], alike, *sequence[place + 1 :])


def _traffic_kept(brief: Brief) -> list[Schedule]:
    schedules = [_busy(brief), *if_it_fits(brief, _long(brief))]
    if Capability.PREFIX in brief.capabilities:
        schedules.append(_continued(brief))
    return schedules


def _busy(brief: Brief) -> Schedule:
    """Conversations that go on, branch and are forgotten, in a store that has room for few.

    Each wave comes when the answer that it goes on from has ended, and others still decode.
    """
    caching = PrefixCaching(blocks=24, block_size=_BLOCK, snapshots=4, interval=2 * _BLOCK)
    options = EngineOptions(9, 2, 6, prefix_caching=caching)
    texts = _Texts(brief, Seeded(brief.seed, 5), options)
    draw = texts.choices.integer
    first, forgotten = texts.other(5, _LASTING), texts.other(22, 3)
    root = texts.other(19 + draw(0, 3), 2, cut=16)
    arrivals, removals = [together(first, forgotten, root)], []
    for wave in range(_WAVES):
        whole, when = texts.whole(root), gone(root.request_id)
        goes_on = texts.add(texts.own(whole, draw(2, 7)), 3 + wave, cut=len(whole))
        beside = texts.add(texts.own(whole, 8 + wave), 6)
        rows = [goes_on, beside, _like(texts, root, wave), texts.other(9 + 3 * wave, 4)]
        arrivals.append(together(*rows, when=when))
        if wave % 2:
            removals.append(Removal((beside.request_id,), produced(beside.request_id, 2)))
        root = goes_on
    again = texts.add(forgotten.prompt, 4)
    arrivals.append(together(again, when=gone(root.request_id)))
    return Schedule("busy", tuple(arrivals), tuple(removals), options=options)


def _like(texts: _Texts, root: Request, manner: int) -> Request:
    """A request that differs from an earlier one somewhere."""
    draw, whole = texts.choices.integer, texts.whole(root)
    if manner % 3 == 0:  # the last token of a block is another one
        block = draw(3, len(root.prompt) // _BLOCK)
        return texts.add(texts.twin(root.prompt, block * _BLOCK - 1), 3)
    if manner % 3 == 1:  # the last token of the answer is another one
        return texts.add(texts.own(texts.twin(whole, len(whole) - 1), draw(1, 4)), 5)
    # It branches, often within a block.
    place = draw(2 * _BLOCK + 1, len(root.prompt) - 2)
    return texts.add(texts.own(root.prompt[:place], draw(2, 9)), 2)


def _long(brief: Brief) -> Schedule:
    """One long prompt; then branches, twins and what goes on after it decode at once.

    Some prefixes end where storage is full, and so does a prompt that is kept.
    """
    caching = PrefixCaching(blocks=1024, block_size=_BLOCK, interval=_PIECE)
    options = EngineOptions(_PIECE, 3, 6, prefix_caching=caching)
    texts = _Texts(brief, Seeded(brief.seed, 6), options)
    first = texts.other(7, _LASTING // 2)
    base = texts.other(_SHARED + 11, 3)
    end = len(texts.whole(base))
    rows = [
        texts.add(texts.own(base.prompt[: _SHARED + 2], 6), 5),
        texts.add(texts.own(base.prompt[: 2 * _GROWTH], _PART), 4),
        texts.add(texts.own(base.prompt[:_GROWTH], 3), 5),
        texts.other(9, 7),
        texts.add(texts.own(texts.whole(base), 3), 6),
        texts.add(texts.alike(base.prompt, _SHARED - 1), 4),
        texts.add(texts.own(texts.twin(texts.whole(base), end - 1), 2), 3),
        texts.add(texts.own(base.prompt[: _SHARED // 3], 5), 6),
    ]
    again = [texts.add(texts.own(row.prompt, 1), 3) for row in (base, rows[1])]
    arrivals = (
        together(first, base),
        together(*rows, when=gone(base.request_id)),
        together(*again, when=gone(rows[-1].request_id)),
    )
    return Schedule("long", arrivals, options=options)


def _continued(brief: Brief) -> Schedule:
    """Rows go on from caches of rows that decode or have ended, saved and loaded or not."""
    choices = Seeded(brief.seed, 7)
    options = EngineOptions(9, 2, 6)
    saves = Capability.SAVED in brief.capabilities
    made: list[Request] = []

    def row(length: int, limit: int, after: Continuation | None = None) -> Request:
        number = len(made)
        named = f"r{number}"
        request = text_request(
            brief, named, length, variant=number, max_tokens=limit, continues=after
        )
        made.append(request)
        return request

    def end(of: Request, *, saved: bool = False) -> Continuation:
        return Continuation(of.request_id, saved=saved and saves)

    begun = [row(11, _LASTING), row(2, 9), row(5, 8), row(26, 3), row(15, 5)]
    first, *_, source, other = begun
    alive = Continuation(first.request_id, after=4)
    live = [row(3, 6, alive), row(8, 4, alive), row(6, 5)]
    ended = [
        row(choices.integer(2, 6), 9, end(source)),
        row(1, 4, end(source, saved=True)),
        row(13, 5),
        row(choices.integer(7, 10), 6, end(other, saved=True)),
        row(5, 3, end(source)),
    ]
    leaving = ended[0]
    later = [row(4, 5, end(ended[1], saved=True)), row(2, 7, end(ended[3])), row(17, 3)]
    arrivals = [
        together(*begun),
        together(*live, when=produced(first.request_id, 4)),
        together(*ended, when=gone(other.request_id)),
        together(*later, when=gone(ended[3].request_id)),
    ]
    removals = (Removal((leaving.request_id,), produced(leaving.request_id, 3)),)
    return Schedule("continued", tuple(arrivals), removals, options=options)


def _of_text(family: Family) -> str:
    kind = family.facts.required
    return f"no two requests share a prefix: each has its own {kind}" if kind else ""


def _long_hit() -> Witness:
    return Witness(
        f"a reused prefix of {_SHARED} tokens",
        lambda trace: any(
            count >= _SHARED for step in trace.steps for count in step.output.reused.values()
        ),
        reach=lambda schedule, rules: max(foreseen.foreseen(schedule, rules).values()) >= _SHARED,
    )


def _goes_on(trace: Trace) -> bool:
    """Two rows that go on from one cache decode at once, next to one that does not."""
    sources = {r.request_id: r.continues for r in trace.schedule.requests}
    for step in trace.steps:
        rows = [sources[name] for name in step.in_stage(Stage.DECODE)]
        after = [row.request_id for row in rows if row is not None]
        if len(after) > len(set(after)) and None in rows:
            return True
    return False


TRAFFIC_KEPT = Scenario(
    "traffic_kept",
    212,
    "a busy server that keeps, cuts, gives up, saves and loads the prefixes of its prompts",
    frozenset(
        {
            Capability.PREFIX_CACHING,
            Capability.CHUNKED,
            Capability.LATE_JOIN,
            Capability.CANCEL,
            Capability.STAGES,
            Capability.SLOTS,
        }
    ),
    _traffic_kept,
    (
        reuse.hit().shown_in("busy", "long"),
        reuse.late_hit().shown_in("busy", "long"),
        reuse.beside_cold().shown_in("long"),
        reuse.removed(Stage.DECODE).shown_in("busy"),
        reuse.evicted().shown_in("busy"),
        _long_hit().shown_in("long"),
        Witness(
            "two rows that go on from one cache, next to another",
            _goes_on,
            frozenset({Capability.PREFIX}),
        ).shown_in("continued"),
    ),
    applies=_of_text,
)
