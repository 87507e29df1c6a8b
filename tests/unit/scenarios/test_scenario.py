"""Each witness of each scenario is missed by something that fakes the scenario.

What is faked does everything right but the one thing: so only the witness keeps the case from being
called exact. An engine fakes what it does; where a witness looks at what was asked, the schedules
are faked, and the engine is right. By day each scenario is made of two seeds, by night of more.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pytest
from miniatures import caching, drafting, fakes, pooling, storing, weighing
from miniatures.library import subject
from miniatures.right import ContinuousBatching
from msgspec.structs import replace

from conformance.core.schedule import Arrival, Request, Schedule, Stage
from conformance.core.token_choice import Processor, Sampler
from conformance.core.verdict import Verdict
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios import LADDER, Scenario, Witness

BATCHED = [scenario for scenario in LADDER if not scenario.oracle_only]
CLAIMED = [(scenario, witness.name) for scenario in BATCHED for witness in scenario.witnesses]


def changed(change):
    """Schedules with each request changed; it goes where ``change`` gives ``None``."""

    def edit(schedule):
        arrivals = (
            replace(a, requests=tuple(filter(None, map(change, a.requests))))
            for a in schedule.arrivals
        )
        return replace(schedule, arrivals=tuple(a for a in arrivals if a.requests))

    return edit


def all_at_once(schedule):
    """Nobody waits for another's end."""
    return replace(schedule, arrivals=(Arrival(schedule.requests),))


def without_samplers(schedule):
    """Nobody has a sampler, the engine neither."""
    edited = changed(lambda r: replace(r, sampler=None))(schedule)
    return replace(edited, options=replace(schedule.options, sampler=None))


def ended_by_themselves(schedule):
    """What waits for a removal waits for an end, and nothing is removed."""
    arrivals = tuple(
        replace(a, when=replace(a.when, stage=Stage.FINISHED))
        if a.when.stage is Stage.REMOVED
        else a
        for a in schedule.arrivals
    )
    return replace(schedule, arrivals=arrivals, removals=())


def greedy(schedule):
    """The likeliest token wherever there was a sampler, the engine's own too."""
    plain = Sampler("library", {})
    edit = changed(lambda r: replace(r, sampler=plain if r.sampler else None))
    options = schedule.options
    changed_options = replace(options, sampler=plain if options.sampler else None)
    return replace(edit(schedule), options=changed_options)


short_prompts = changed(lambda r: replace(r, prompt=r.prompt[:8]))
short_wholes = changed(lambda r: replace(r, prompt=r.prompt[:99], segments=()))
short_outputs = changed(lambda r: replace(r, max_tokens=min(r.max_tokens, 4)))
without_processors = changed(lambda r: replace(r, processors=()))
same_processors = changed(
    lambda r: replace(r, processors=(Processor("library", {"presence_penalty": 0.5}),))
)
without_stops = changed(lambda r: replace(r, stop=()))
without_budgets = changed(lambda r: replace(r, budget=None))
all_think_at_once = changed(
    lambda r: replace(r, budget=r.budget and replace(r.budget, later=False))
)


def pool(**options):
    """Schedules with another pool."""

    def of(schedule):
        caching = replace(schedule.options.prefix_caching, **options)
        return replace(schedule, options=replace(schedule.options, prefix_caching=caching))

    return of


without_continuations = changed(lambda r: None if r.continues else r)
from_nothing = changed(lambda r: replace(r, continues=None))


def uncounted(schedule):
    """Without limits of what work costs, which such an engine may break, too."""
    return replace(schedule, contracts=())


def unweighed(schedule):
    """Nobody looks at what requests leave."""
    return replace(schedule, weigh=None)


@dataclass(frozen=True)
class Fake:
    """Another engine than a right one, or other schedules than the scenario's."""

    engine: type[ContinuousBatching] = ContinuousBatching
    schedules: Callable[[Schedule], Schedule] = lambda schedule: schedule


ONE_BY_ONE, NEVER_PADS = Fake(fakes.OneByOne), Fake(fakes.NeverPads)
PADS_ALWAYS, UNMETERED = Fake(fakes.PadsAlways), Fake(fakes.Unmetered)
PREFILLS_WHOLE, PREFILLS_AT_ONCE = Fake(fakes.PrefillsWhole), Fake(fakes.PrefillsAtOnce)
JOINS_LATE, MORE_SLOTS = Fake(fakes.JoinsLate), Fake(fakes.HasMoreSlots)
AT_ONCE, NOT_QUANTIZED = Fake(fakes.AnswersAtOnce), Fake(fakes.NeverQuantizes)
LATE_JOIN = {"a late join while another decodes": JOINS_LATE}
EQUAL = {
    "4 rows in one decode call": ONE_BY_ONE,
    "4 prompts in one prefill call": NEVER_PADS,
    "no padding": PADS_ALWAYS,
}
PROOFS = {
    "batch_of_one": {"calls of one row": UNMETERED},
    "identical": EQUAL,
    "equal_length": EQUAL,
    "ragged": {
        "4 rows in one decode call": ONE_BY_ONE,
        "4 prompts in one prefill call": NEVER_PADS,
        "padding in prefill": NEVER_PADS,
        "a prompt of more than 512 tokens": Fake(schedules=short_prompts),
        "an output of 40 tokens": Fake(schedules=short_outputs),
    },
    "chunked": {
        "4 rows in one decode call": ONE_BY_ONE,
        "padding in prefill": NEVER_PADS,
        "a prompt in 3 pieces": PREFILLS_WHOLE,
        "a prompt of more than 512 tokens": Fake(schedules=short_prompts),
    },
    "staggered": LATE_JOIN | {"3 rows in one decode call": ONE_BY_ONE},
    "early_finish": {
        "4 rows in one decode call": ONE_BY_ONE,
        "a row that ends before others": ONE_BY_ONE,
        "a row that ends before others of 7": ONE_BY_ONE,
        "a row that ends with its first token, beside rows that do not": Fake(
            schedules=without_stops
        ),
    },
    "slot_reuse": {
        "a request that waits for a slot": MORE_SLOTS,
        "2 rows in one decode call": ONE_BY_ONE,
    },
    "window": LATE_JOIN
    | {
        "a prompt of two windows": Fake(schedules=short_prompts),
        "an output of one window": Fake(schedules=short_outputs),
    },
    "cancelled": {
        "a prompt in 3 pieces": PREFILLS_WHOLE,
        "a removal in queued": MORE_SLOTS,
        "a removal in prefill": PREFILLS_AT_ONCE,
        "a removal in prefill among 4": ONE_BY_ONE,
        "a removal in decode": AT_ONCE,
        "a removal in decode among 5": ONE_BY_ONE,
        "a removal in decode among 8": ONE_BY_ONE,
        "a row whose longer neighbour was removed in prefill": ONE_BY_ONE,
        "a row whose longer neighbour was removed in decode": ONE_BY_ONE,
        "a follow-up request that ends": AT_ONCE,
    },
    "images_together": {"2 rows in one decode call": ONE_BY_ONE},
    "mixed_modality": {
        "media beside text from the start": ONE_BY_ONE,
        "text that joins media": JOINS_LATE,
        "media that joins text": JOINS_LATE,
        "media removed in decode": AT_ONCE,
        "three requests one after another": MORE_SLOTS,
    },
    "media_in_pieces": {
        "a piece of prefill that ends within a medium": PREFILLS_WHOLE,
        "media removed in prefill": PREFILLS_AT_ONCE,
        "text whose longer neighbour was removed in prefill": ONE_BY_ONE,
        "media whose longer neighbour was removed in prefill": ONE_BY_ONE,
    },
    "stale_state": {
        "calls of one row": Fake(schedules=all_at_once),
        "three requests one after another": Fake(schedules=all_at_once),
    },
    "quantized": {
        "a quantized cache": NOT_QUANTIZED,
        "a row that leaves a quantized batch": ONE_BY_ONE,
        "a row that joins a quantized batch": ONE_BY_ONE,
        "rows on either side of the start": ONE_BY_ONE,
        "padding in prefill": NEVER_PADS,
    },
    "prompt_cache": {
        "a request that goes on from a cache": Fake(schedules=without_continuations),
        "2 prompts in one prefill call": NEVER_PADS,
    },
    "held": {
        "steps of several rows whose graph was counted": Fake(weighing.CountsNoGraph),
        "a kept cache of one of several rows that was weighed": Fake(weighing.WeighsOneByOne),
        "200 steps after which all that lives was counted": Fake(schedules=short_outputs),
    },
    "kept": {
        "a kept cache of one of several rows that was weighed": Fake(weighing.KeepsNoCache),
        "a cache kept of a prompt's piece that was weighed": Fake(weighing.StoresNothing),
    },
    "prefix_store": {
        "a prefix that is reused": Fake(pooling.PoolOfNothing),
        "a kept prefix that is given up": Fake(
            pooling.KeepsAPool, pool(blocks=999, times_first=None)
        ),
        "prefixes of several rows at once": Fake(pooling.PoolOfOneRow),
        "a prefix from files": Fake(pooling.KeepsAPool, pool(disk=False)),
        "a prefix from files behind memory": Fake(pooling.KeepsAPool, pool(disk=False)),
        "a reused prefix of each tenant": Fake(pooling.PoolOfNothing),
    },
    "stop_sequences": LATE_JOIN
    | {
        "rows that stop beside rows that do not": Fake(schedules=without_stops),
        "a row that stops at its first token": Fake(schedules=without_stops),
    },
    "samplers": LATE_JOIN
    | {
        "other samplers beside none": Fake(schedules=without_samplers),
        "a row with its own processors beside one with the engine's": ONE_BY_ONE,
        "a token that the engine's sampler chose": Fake(schedules=greedy),
        "processors that join after all others have left": ONE_BY_ONE,
        "processors that join after a row without has left": ONE_BY_ONE,
        "a history of more than 256 tokens": Fake(schedules=short_prompts),
        "a penalty over a prompt in pieces": PREFILLS_WHOLE,
    },
    "distributions": LATE_JOIN
    | {
        "8 rows in one decode call": ONE_BY_ONE,
        "64 rows in one decode call": ONE_BY_ONE,
        "equal rows that draw different tokens": Fake(schedules=greedy),
    },
    "structured": {
        "a row with a grammar beside a free one": ONE_BY_ONE,
        "a grammar that forbade the likeliest token": Fake(schedules=without_processors),
        "a grammar that moved on over a join": ONE_BY_ONE,
        "a removal in decode among 4": ONE_BY_ONE,
        "a follow-up request that ends": AT_ONCE,
    },
    "speculative": {
        "a draft accepted whole": Fake(drafting.TakesNoDraftWhole),
        "a draft accepted in part": Fake(drafting.TakesDraftsWhole),
        "a draft rejected": Fake(drafting.GuessesTheFirst),
        "drafts for 4 rows at once": Fake(drafting.DraftsForThree),
        "a limit within a draft": Fake(drafting.NeverDrafts),
        "a stop within a draft": Fake(schedules=without_stops),
        "a sampled draft accepted in part": Fake(schedules=without_samplers),
        "a request that waits while others draft": Fake(drafting.DraftsAlone),
        "a removal in decode among 4": Fake(drafting.DraftsOneByOne),
        "a follow-up request that ends": Fake(drafting.DraftsWithoutStages),
    },
    "prefix_caching": {
        "a prefix that is reused": Fake(caching.NeverReuses),
        "processors over a reused prefix": Fake(caching.NeverReuses),
        "a prefix that ends within a block": Fake(caching.ReusesWholePrompts),
        "a reused prefix beside a prompt without one": Fake(caching.AdmitsOne),
        "a reused prefix while another request decodes": Fake(caching.ReusesWhenIdle),
        "a prompt that comes again after its prefix was given up": Fake(caching.NeverForgets),
        "a sequence given up at a call insert": Fake(storing.StoresAll),
        "a sequence given up at a call bound": Fake(storing.StoresWithoutABound),
        "sequences of 2 kinds": Fake(storing.StoresAnswersAlone),
        "a removal in prefill of a request that reused a prefix": Fake(caching.ReusesAtOnce),
        "a removal in decode of a request that reused a prefix": Fake(caching.ReusesAtOnce),
        "a follow-up request that ends": Fake(caching.ReusesAtOnce),
    },
    "wide": {"33 rows in one decode call": ONE_BY_ONE, "calls of one row": UNMETERED},
    "invalid": {
        "an invalid call": Fake(fakes.WithoutProbes),
        "2 rows in one decode call": ONE_BY_ONE,
    },
    "threads": {"2 rows in one decode call": ONE_BY_ONE},
    "traffic": LATE_JOIN
    | {
        "12 rows in one decode call": ONE_BY_ONE,
        "a request that waits for several steps": MORE_SLOTS,
        "a removal in decode among 5": ONE_BY_ONE,
        "a removal that leaves no request": Fake(schedules=ended_by_themselves),
    },
    "traffic_options": LATE_JOIN
    | {
        "4 rows in one decode call": ONE_BY_ONE,
        "9 rows in one decode call": ONE_BY_ONE,
        "rows with processors of four kinds": Fake(schedules=same_processors),
        "rows whose thinking is ended for them": Fake(schedules=without_budgets),
        "thinking that begins within an answer and is ended": Fake(schedules=all_think_at_once),
        "thinking that begins again and is ended again": Fake(schedules=without_budgets),
    },
    "marathon": {
        "a very long row beside two others": ONE_BY_ONE,
        "20 rows in one decode call": ONE_BY_ONE,
        "257 rows in one decode call": ONE_BY_ONE,
        "9 rows that join at once": ONE_BY_ONE,
        "a removal in decode among 9": ONE_BY_ONE,
        "two long rows for long": ONE_BY_ONE,
    },
    "traffic_kept": {
        "a prefix that is reused": Fake(caching.NeverReuses),
        "a reused prefix while another request decodes": Fake(caching.ReusesWhenIdle),
        "a reused prefix beside a prompt without one": Fake(caching.AdmitsOne),
        "a removal in decode of a request that reused a prefix": Fake(caching.ReusesAtOnce),
        "a prompt that comes again after its prefix was given up": Fake(caching.NeverForgets),
        "a reused prefix of 520 tokens": Fake(storing.StoresSequences, short_wholes),
        "two rows that go on from one cache, next to another": Fake(
            storing.StoresSequences, from_nothing
        ),
    },
    "traffic_media": LATE_JOIN
    | {
        "3 rows in one decode call": ONE_BY_ONE,
        "several media of one text at once": ONE_BY_ONE,
    },
    "traffic_leaves": {
        "what each of many engines left": Fake(weighing.Weighs, unweighed),
        "what one engine left each time": Fake(weighing.Weighs, unweighed),
    },
    "traffic_drafts": {
        "a draft accepted whole": Fake(drafting.NeverDrafts),
        "a draft accepted in part": Fake(drafting.TakesDraftsWhole),
        "a draft rejected": Fake(drafting.GuessesTheFirst),
        "a removal in decode among 4": Fake(drafting.DraftsOneByOne),
        "own drafts of rows that others left": Fake(drafting.NeverDrafts),
        "own drafts that differ by row": Fake(drafting.AlwaysTheSame),
    },
    "traffic_quantized": {
        "a quantized cache": NOT_QUANTIZED,
        "a row that leaves a quantized batch": ONE_BY_ONE,
        "a row that joins a quantized batch": ONE_BY_ONE,
        "5 rows in one decode call": ONE_BY_ONE,
    },
    "cost_positions": {
        "a prompt beside one of a hundred times its length, in pieces": Fake(
            fakes.PrefillsWhole, uncounted
        ),
    },
    "cost_rows": {
        "4 rows in one decode call": Fake(fakes.OneByOne, uncounted),
        "a row that ends before others": Fake(fakes.OneByOne, uncounted),
        "a removal in decode": Fake(fakes.AnswersAtOnce, uncounted),
    },
    "cost_late": {"a late join while another decodes": Fake(fakes.JoinsLate, uncounted)},
    "cost_reads": {
        "steps of three rows whose reads were counted": Fake(fakes.OneByOne, uncounted),
    },
    "cost_lasting": {
        "200 steps after which all that lives was counted": Fake(
            schedules=lambda schedule: uncounted(short_outputs(schedule))
        ),
    },
    "cost_quantized": {
        "layers of 8 bits": Fake(fakes.NeverQuantizes, uncounted),
        "layers of 4 bits": Fake(fakes.NeverQuantizes, uncounted),
    },
    "cost_prefix": {"a prefix that is reused": Fake(caching.NeverReuses, uncounted)},
}


@pytest.fixture(scope="module")
def toy():
    """One subject for all: its single streams are made once."""
    return subject()


@pytest.fixture(scope="module")
def judged(toy):
    """The outcome of a scenario with a fake; one that misses several witnesses is played once."""

    @functools.cache
    def outcome(scenario, fake):
        made = scenario.make(brief_for(toy, fake.engine, 0))
        return judge_batched(toy, fake.engine, scenario, [fake.schedules(s) for s in made])

    return outcome


def unproved(ladder, proofs):
    """Witnesses that no fake is named for."""
    return [
        (scenario.name, witness.name)
        for scenario in ladder
        for witness in scenario.witnesses
        if witness.name not in proofs.get(scenario.name, {})
    ]


def test_every_witness_has_a_fake():
    assert unproved(LADDER, PROOFS) == []


def test_every_fake_is_for_a_witness():
    named = {(scenario, name) for scenario, proofs in PROOFS.items() for name in proofs}
    assert named == {(scenario.name, name) for scenario, name in CLAIMED}


def test_a_witness_without_a_fake_is_reported():
    new = Witness("a new one", lambda _: True)
    scenario = Scenario("wide", 1, "wide", frozenset(), lambda _: (), (new,))
    assert unproved([scenario], PROOFS) == [("wide", "a new one")]
    assert unproved([replace_name(scenario, "newest")], PROOFS) == [("newest", "a new one")]


def replace_name(scenario, name):
    return Scenario(name, 1, "", frozenset(), scenario.make, scenario.witnesses)


@pytest.mark.parametrize(
    ("scenario", "name"), CLAIMED, ids=[f"{s.name}-{name}" for s, name in CLAIMED]
)
def test_a_fake_comes_out_vacuous_by_the_name_of_the_witness(judged, scenario, name):
    outcome = judged(scenario, PROOFS[scenario.name][name])
    assert outcome.verdict is Verdict.VACUOUS
    assert {finding.verdict for finding in outcome.findings} == {Verdict.VACUOUS}
    assert name in {finding.expected for finding in outcome.findings}


RIGHT = {
    "speculative": drafting.Drafting,
    "prefix_caching": storing.StoresSequences,
    "held": weighing.Weighs,
    "kept": weighing.Weighs,
    "prefix_store": pooling.KeepsAPool,
    "cost_prefix": storing.StoresSequences,
    "traffic_kept": storing.StoresSequences,
    "traffic_drafts": drafting.Drafting,
}


@pytest.mark.parametrize("scenario", BATCHED, ids=[s.name for s in BATCHED])
def test_each_schedule_shows_the_witnesses_that_it_is_made_for(toy, judged, scenario):
    """So a tier may leave out any schedules: what the others are made for can be required."""
    engine = RIGHT.get(scenario.name, ContinuousBatching)
    made = scenario.make(brief_for(toy, engine, 0))
    outcome = judged(scenario, Fake(engine))
    assert (outcome.verdict, outcome.findings) == (Verdict.EXACT, ())
    shown = {w.name: w.schedules for w in outcome.witnesses}

    def fewer():
        """What is made for an engine that can do no more than the scenario needs."""
        least = type("Least", (engine,), {"capabilities": frozenset(scenario.needs)})
        return scenario.make(brief_for(toy, least, 0))

    for witness in scenario.witnesses:
        claimed = [s.name for s in made if witness.made_for(s.name)]
        assert set(claimed) <= set(shown[witness.name]), witness.name
        unused = [g for g in witness.schedules if not any(map(made_by(g), made))]
        assert not unused or all(any(map(made_by(g), fewer())) for g in unused), witness.name


def made_by(glob):
    return lambda schedule: fnmatchcase(schedule.name, glob)


# Each has hundreds of steps, draws or more, in which little hangs on the seed.
LONG = ("cost_lasting", "distributions", "held", "marathon", "traffic_drafts", "traffic_leaves")
BY_NIGHT = range(2, 20)


@pytest.mark.parametrize(
    ("scenario", "seeds"),
    # The test before this one has the first.
    [pytest.param(s, [1], id=s.name) for s in BATCHED if s.name not in LONG]
    + [
        pytest.param(
            *(s, [1, 2] if s.name in LONG else BY_NIGHT),
            id=f"{s.name}-more",
            marks=pytest.mark.nightly,
        )
        for s in BATCHED
    ],
)
def test_every_seed_reaches_the_witnesses(toy, scenario, seeds):
    """With few tokens to draw from, prompts begin and go on alike by chance; that is no way out."""
    engines = [RIGHT.get(scenario.name, ContinuousBatching)]
    if scenario.name == "prefix_caching":
        engines.append(caching.CutsSequences)
    for engine in engines:
        for seed in seeds:
            made = scenario.make(brief_for(toy, engine, seed))
            outcome = judge_batched(toy, engine, scenario, made)
            assert (seed, outcome.verdict, outcome.findings) == (seed, Verdict.EXACT, ())


def test_the_schedules_of_a_fake_can_be_played():
    """What is taken out of them is all that is changed."""
    one, more = Request("a", (1,) * 9, 9), Request("b", (1,), 1)
    schedule = Schedule("s", (Arrival((one,)), Arrival((more,))))
    assert short_prompts(schedule).requests == (replace(one, prompt=(1,) * 8), more)
    assert short_outputs(schedule).requests == (replace(one, max_tokens=4), more)
    assert all_at_once(schedule).arrivals == (Arrival((one, more)),)
    assert without_continuations(schedule) == schedule


# Equal requests are what these are about: one batch of equal rows, a result from before, a kept
# prefix, what a server keeps of a connection, what comes again.
OF_EQUALS = (
    "identical",
    "mixed_modality",
    "stale_state",
    "prefix_",
    "served_",
    "distributions",
    "traffic_",
)


# Of hundreds of rows each is like another one far from it: every single stream costs.
UNLIKE = 37


def test_no_two_rows_of_a_schedule_are_alike(toy):
    """Rows that were mixed up must not look right by chance."""
    alike = []
    for scenario in BATCHED:
        if scenario.name.startswith(OF_EQUALS) and scenario.name != "traffic_options":
            continue
        engine = RIGHT.get(scenario.name, ContinuousBatching)
        for schedule in scenario.make(brief_for(toy, engine, 0)):
            bare = [
                replace(r, request_id="", max_tokens=0)
                for r in schedule.requests
                # tiny ones are there to be many
                if r.max_tokens > 2 or (len(r.prompt) > 1 and r.max_tokens > 1)
            ]
            if len(set(map(repr, bare))) < (UNLIKE if len(bare) > 256 else len(bare)):
                alike.append((scenario.name, schedule.name))
    assert alike == []
