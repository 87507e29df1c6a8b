"""A case with known defects is right with those mended, or something else is wrong with it."""

import dataclasses

import pytest
from miniatures.library import ForgetfulLibrary, ToyLibrary
from miniatures.right import ContinuousBatching
from miniatures.sessions import entry_of_wrong, padding_is_masked, toy_session
from miniatures.wrong import AttendsToPadding, CallsEveryEndStop, LosesFirstToken
from mlx_lm.models import cache

from conformance.checks.expectations import Defect, Expectations
from conformance.checks.expectations.bound_places import Bound
from conformance.core.errors import Unsupported
from conformance.core.faults.patching import replace, wrap
from conformance.core.mends import mend
from conformance.core.missing_names import _OWN, missing_names
from conformance.core.verdict import CaseId, Finding, Verdict
from conformance.run.case_judge import CaseJudge
from conformance.run.judging.judge import worst
from conformance.run.mending import CHECK, Mending, _Plan, behind_unmended
from conformance.run.tiers import WHOLE


def entry(name, verdict, scenario="ragged", **changes):
    return entry_of_wrong(name, **{"verdicts": {scenario: Verdict(verdict)}, **changes})


@mend("padding-attended")
def nothing_is_repaired(hits):
    """Looks at other code."""
    return replace(LosesFirstToken, "emit", ContinuousBatching.emit)


@mend("first-token-lost")
def first_tokens_are_kept(hits):
    """All tokens are answered."""
    hits.hit()
    return replace(LosesFirstToken, "emit", ContinuousBatching.emit)


@mend("cache-off-by-one", single_stream=True)
def caches_are_right(hits):
    """The position is that of the token."""
    hits.hit()
    return replace(ForgetfulLibrary, "logits", ToyLibrary.logits)


class ForgetsWithoutCache(ToyLibrary):
    """A pass without a cache sees the first token alone."""

    def stateless(self, model, request, tokens):
        return super().stateless(model, request, tokens)[::-1]


@mend("wrong-without-cache", single_stream=True)
def passes_without_cache_are_right(hits):
    """A pass without a cache sees all tokens."""

    def stateless(self, model, request, tokens):
        hits.hit()
        return ToyLibrary.stateless(self, model, request, tokens)

    return replace(ForgetsWithoutCache, "stateless", stateless)


def play(
    *entries, mends, engine=AttendsToPadding, scenario="ragged", library=None, before=0, tier=WHOLE
):
    """The case as released and judged, and once more with what was mended."""
    session = toy_session({"wrong": engine}, library=library, mends=mends, options={"tier": tier})
    case = CaseId("wrong", "calm", scenario, "float32", 0)
    expectations = Expectations(entries)
    released = expectations.apply(session.run(case))
    mending = Mending(session)
    about = (expectations.shown_in(released), expectations.left_out_of(released))
    assert mends_nothing(released) or not mending.holds(released, *about)
    for _ in range(1 + before):
        found = mending.play(case, released, *about)
    judged = expectations.apply(found)
    assert mending.holds(judged, expectations.shown_in(judged), about[1])
    return released, judged


def mends_nothing(result):
    """Whether nothing of a result is to be mended."""
    return result.verdict.good or not result.expected


PADDING = entry("padding-attended", "diverged")


def test_what_is_right_once_mended_is_expected():
    released, found = play(PADDING, mends=[padding_is_masked])
    assert released.verdict is Verdict.DIVERGED
    assert (found.expected, found.verdict, found.known) == (True, Verdict.DIVERGED, PADDING.id)
    assert (found.mended.verdict, found.mended.defects) == (Verdict.EXACT, (PADDING.id,))
    assert set(found.mended.schedules) == {s.name for s in released.schedules if not s.verdict.good}
    assert found.right_once_mended
    assert found.evidence == released.evidence


@mend("padding-attended")
def a_name_is_gone(hits):
    """Changes a function that this release does not have."""
    return wrap(AttendsToPadding, "_gone", print)


@mend("padding-attended")
def a_name_is_gone_inside(hits):
    """Looks up a function that this release does not have."""
    return exec(compile("cache._gone", f"{_OWN}/planted.py", "exec"), {"cache": cache})


@pytest.mark.parametrize(
    ("lacking", "name"),
    [
        (a_name_is_gone, "miniatures.wrong.AttendsToPadding._gone"),
        (a_name_is_gone_inside, "mlx_lm.models.cache._gone"),
    ],
)
def test_a_mend_of_what_a_release_lacks_is_named_and_left_out(lacking, name):
    _, found = play(PADDING, mends=[lacking])
    assert (found.expected, found.mended, found.unmended) == (True, None, (PADDING.id,))
    assert missing_names(found.evidence) == (f"unsupported here: {name}",)


class Both(AttendsToPadding, LosesFirstToken):
    """A defect behind a known one."""


def test_a_defect_behind_a_known_one_is_found():
    known = entry("padding-attended", "protocol", "staggered")
    released, found = play(known, mends=[padding_is_masked], engine=Both, scenario="staggered")
    assert released.expected, "so the defect behind it is not seen"
    assert not found.expected
    assert found.mended.verdict is Verdict.PROTOCOL
    new = [f for f in found.evidence if f.mended]
    assert new
    assert {f.mended for f in new} == {known.id}
    assert not any(f.known for f in new)
    assert "with that mended the case is protocol" in found.evidence[-1].what


def test_what_an_entry_hides_is_mended_with_it():
    known = entry(
        "padding-attended",
        "protocol",
        "staggered",
        families=("calm", "quiet"),
        behind=("first-token-lost", "of-another-family"),
        hidden_in={"first-token-lost": ("c*",), "of-another-family": ("quiet",)},
    )
    mends = [padding_is_masked, first_tokens_are_kept]
    _, found = play(known, mends=mends, engine=Both, scenario="staggered")
    assert (found.expected, found.mended.verdict) == (True, Verdict.EXACT)
    assert found.mended.defects == (known.id, "first-token-lost")
    _, found = play(known, mends=mends[:1], engine=Both, scenario="staggered")
    assert (found.mended, found.unmended) == (None, (known.id,))


def test_a_mend_without_effect_proves_nothing():
    _, found = play(PADDING, mends=[nothing_is_repaired])
    assert not found.expected
    (idle,) = [f for f in found.evidence if f.check == CHECK]
    assert "nothing_is_repaired" in idle.what
    assert idle.verdict is Verdict.VACUOUS


@pytest.mark.parametrize("repair", [padding_is_masked, nothing_is_repaired])
def test_an_engines_mend_without_effect_in_its_server_proves_nothing(repair):
    session = toy_session({"wrong": AttendsToPadding})
    plan = _Plan(mends=(repair,), over_http=frozenset({PADDING.id}))
    found = Mending(session)._run(CaseId("wrong", "calm", "ragged", "float32", 0), plan)[1]
    idle = [finding for finding in found if finding.check == CHECK]
    assert bool(idle) is (repair is nothing_is_repaired)


WRONG = Finding(Verdict.DIVERGED, "free", "output token 0 is 1")
IDLE = Finding(Verdict.VACUOUS, CHECK, "the mend never had an effect")


@pytest.mark.parametrize(
    ("plays", "played", "right"),
    [
        pytest.param([(WRONG, IDLE), (), ()], 1, False, id="what fails beside no defect"),
        pytest.param([(), (WRONG,), ()], 2, False, id="every second play fails"),
        pytest.param([(IDLE,), (), (IDLE,), ()], 3, True, id="the defect shows once"),
        pytest.param([(IDLE,)] * 5 + [()], 6, True, id="it shows late"),
        pytest.param([(IDLE,)] * 9, 8, False, id="it never shows"),
    ],
)
def test_a_server_is_asked_several_times_whether_its_engines_defect_is_all(
    plays, played, right, monkeypatch
):
    left = list(plays)
    monkeypatch.setattr(Mending, "_findings", lambda *_: left.pop(0))
    session = toy_session({"wrong": AttendsToPadding})
    plan = _Plan(over_http=frozenset({PADDING.id}))
    case = CaseId("wrong", "calm", "ragged", "float32", 0)
    found = Mending(session)._played(case, plan)
    assert (len(plays) - len(left), worst(found).good) == (played, right)


class RefusesLater(AttendsToPadding):
    """Behind its defect it refuses."""

    def feed(self, row, piece, *, padding):
        if padding:
            raise ValueError("padding")


def test_a_mend_behind_what_is_refused_need_have_no_effect():
    @mend("padding-attended")
    def padding_is_refused(hits):
        """Padding is refused in clear words."""

        def feed(self, row, piece, *, padding):
            hits.hit()
            raise NotImplementedError("padding is not supported")

        return replace(RefusesLater, "feed", feed)

    known = entry("padding-attended", "crash")
    behind = entry("of-another-kind", "crash")
    mends = [padding_is_refused, dataclasses.replace(nothing_is_repaired, defects=(behind.id,))]
    _, found = play(known, behind, mends=mends, engine=RefusesLater)
    assert (found.mended, found.unmended) == (None, (behind.id, known.id))
    assert CHECK not in {finding.check for finding in found.evidence}


def test_without_a_mend_the_entry_is_named_as_one_that_hides():
    released, found = play(PADDING, mends=[])
    assert (found.expected, found.mended, found.unmended) == (True, None, (PADDING.id,))
    assert not found.right_once_mended
    assert found.evidence == released.evidence


@mend("padding-attended")
def what_comes_next_is_refused(hits):
    """The engine says that it can't."""

    def feed(self, row, piece, *, padding):
        raise Unsupported("GatherMM currently only supports float32")

    return replace(AttendsToPadding, "feed", feed)


def test_where_the_mended_case_is_refused_the_entry_hides_what_comes_after_it():
    released, found = play(PADDING, mends=[what_comes_next_is_refused])
    assert (found.expected, found.mended, found.unmended) == (True, None, (PADDING.id,))
    *before, refusal = found.evidence
    assert tuple(before) == released.evidence
    assert "GatherMM currently only supports float32" in refusal.what + refusal.got
    assert (refusal.mended, refusal.known) == (PADDING.id, "")


class RefusesManyRows(AttendsToPadding):
    """Of six rows or more it refuses the third token."""

    def step(self):
        if len(self.decode) > 5 and len(self.decode[0].produced) > 1:
            raise Unsupported("GatherMM currently only supports float32")
        return super().step()


def test_a_schedule_that_is_refused_beside_the_defect_is_not_played_again():
    of_all = entry("padding-attended", "diverged", "early_finish")
    released, found = play(
        of_all, mends=[padding_is_masked], engine=RefusesManyRows, scenario="early_finish"
    )
    refused = {f.schedule for f in released.evidence if f.verdict is Verdict.UNSUPPORTED}
    wrong = {s.name for s in released.schedules if s.verdict is Verdict.DIVERGED}
    assert refused == {"of_eight"} < wrong
    assert (found.mended.verdict, found.unmended) == (Verdict.EXACT, ())
    assert set(found.mended.schedules) == wrong - refused


def test_an_entry_about_nothing_but_what_is_refused_hides_it():
    eight = {"early_finish": ("of_eight",)}
    many = entry("many-rows", "diverged", "early_finish", schedules=eight)
    rest = {"early_finish": ("early_finish", "stop_tokens")}
    few = entry("padding-attended", "diverged", "early_finish", schedules=rest)
    both = dataclasses.replace(padding_is_masked, defects=(few.id, many.id))
    _, found = play(many, few, mends=[both], engine=RefusesManyRows, scenario="early_finish")
    assert (found.mended.verdict, found.unmended) == (Verdict.EXACT, (many.id,))


def test_only_schedules_whose_entries_all_have_a_mend_are_played():
    of_padding = {"chunked": ("ragged", "long")}
    first = entry("padding-attended", "diverged", "chunked", schedules=of_padding)
    second = entry("of-edges", "diverged", "chunked", schedules={"chunked": ("edges",)})
    _, found = play(first, second, mends=[padding_is_masked], scenario="chunked")
    assert found.mended.schedules == ("ragged", "long")
    assert (found.mended.verdict, found.unmended) == (Verdict.EXACT, ("of-edges",))
    assert not found.right_once_mended


def test_of_a_workload_it_also_mends_each_failed_schedule_that_no_entry_names():
    few = {"traffic": ("few_slots",)}
    named = entry("padding-attended", "diverged", "traffic", schedules=few)
    unnamed = entry("of-length", "diverged", "ragged", traits=("*",))
    mends = [padding_is_masked, dataclasses.replace(padding_is_masked, defects=(unnamed.id,))]
    _, found = play(named, unnamed, mends=mends, scenario="traffic")
    assert found.mended.schedules == ("few_slots", "many", "lengths_meet")


def once_in_a_workload(**changes):
    class Once(AttendsToPadding):
        over = False

        def feed(self, row, piece, *, padding):
            super().feed(row, piece, padding=0 if Once.over else padding)

    @mend("padding-attended")
    def it_is_over(hits):
        Once.over = True
        return replace(Once, "unused", None)

    Once.unused = None
    known = entry("padding-attended", "diverged", "traffic", **changes)
    return play(known, mends=[it_is_over], engine=Once, scenario="traffic")[1]


def test_what_does_not_happen_again_in_a_workload_is_no_known_defect():
    found = once_in_a_workload()
    assert not found.expected
    assert found.mended.verdict is Verdict.UNSTABLE
    assert any("right when it is run again as released" in f.what for f in found.evidence)


def test_what_ends_its_process_is_not_run_again_as_released_in_this_one():
    found = once_in_a_workload(ends_process=True)
    assert (found.expected, found.mended.verdict) == (True, Verdict.EXACT)


def test_single_streams_are_made_anew_where_they_are_wrong():
    known = entry("cache-off-by-one", "oracle", "repeat")
    released, found = play(
        known,
        mends=[caches_are_right],
        engine=ContinuousBatching,
        scenario="repeat",
        library=ForgetfulLibrary(),
    )
    assert released.verdict is Verdict.ORACLE
    assert (found.expected, found.mended.verdict) == (True, Verdict.EXACT)


@pytest.mark.parametrize("before", [0, 1])
def test_a_mend_of_a_single_stream_that_is_kept_has_had_its_effect(before):
    _, found = play(
        entry("wrong-without-cache", "oracle", "repeat"),
        mends=[passes_without_cache_are_right],
        engine=ContinuousBatching,
        scenario="repeat",
        library=ForgetsWithoutCache(),
        before=before,
    )
    assert (found.expected, found.mended.verdict) == (True, Verdict.EXACT)


def test_other_code_than_the_one_that_was_diagnosed_is_not_mended():
    changed = entry(
        "padding-attended",
        "diverged",
        where="mlx_lm.models.cache:KVCache.size",
        functions={"mlx_lm.models.cache:KVCache.size": Bound(1, "0" * 12, "0" * 12)},
    )
    _, found = play(changed, mends=[padding_is_masked])
    assert (found.mended, found.unmended) == (None, (changed.id,))


@pytest.mark.parametrize("known", [(), (PADDING,)])
def test_what_is_not_expected_or_right_is_not_played_again(known):
    engine = ContinuousBatching if known else AttendsToPadding
    released, found = play(*known, mends=[padding_is_masked], engine=engine)
    assert (found.mended, found.unmended, found.verdict) == (None, (), released.verdict)


def test_what_takes_part_though_its_own_schedules_were_left_out_is_mended():
    mends = [padding_is_masked, first_tokens_are_kept]
    first = entry("padding-attended", "protocol", "staggered")
    left_out = entry(
        "first-token-lost", "protocol", "staggered", schedules={"staggered": ("not_played",)}
    )
    _, found = play(first, left_out, mends=mends, engine=Both, scenario="staggered")
    assert (found.expected, found.mended.verdict) == (True, Verdict.EXACT)
    assert set(found.mended.defects) == {first.id, left_out.id}
    assert found.known == first.id


def test_a_family_that_a_mend_does_not_repair_whole_has_none():
    partial = dataclasses.replace(padding_is_masked, except_families=("ca*",))
    _, found = play(PADDING, mends=[partial])
    assert (found.expected, found.mended, found.unmended) == (True, None, (PADDING.id,))


@mend("padding-attended")
def prompts_are_fed_one_by_one(hits):
    """No prompt is prefilled beside another one."""

    def admit(self):
        if self.queue and not self.prefill:
            hits.hit()
            self.prefill.append(self.queue.pop(0))

    return replace(AttendsToPadding, "admit", admit)


@pytest.mark.parametrize("declared", [False, True])
def test_what_cannot_be_seen_once_mended_is_missed_unless_the_mend_says_so(declared):
    other = dataclasses.replace(prompts_are_fed_one_by_one, other_pieces=declared)
    _, found = play(PADDING, mends=[other])
    assert found.expected is declared
    assert found.mended.verdict is (Verdict.EXACT if declared else Verdict.VACUOUS)


# Behind an entry without a mend, each request alone on a model loaded anew must be right ----------

RAGGED = CaseId("wrong", "calm", "ragged", "float32", 0)


def without_mend(verdict, **changes):
    fields = {
        "id": "padding-attended",
        "engines": ("wrong",),
        "families": ("calm",),
        "why": "it is",
    }
    fields |= {"package": "toy", "versions": ">=1", "where": "wrong.py:1", "in_workloads": False}
    return Defect(**fields, **{"verdicts": {"ragged": verdict}, "right_alone": True, **changes})


class EndsBehindPadding(AttendsToPadding, CallsEveryEndStop):
    """Behind the padding, which one request does not have, the reason of each end is wrong."""


def judged(engine, *entries):
    session = toy_session({"wrong": engine})
    return CaseJudge(session, Expectations(entries)).judged(RAGGED, session.run(RAGGED))


def test_what_a_request_shows_alone_is_found_behind_an_entry_without_a_mend():
    found = judged(EndsBehindPadding, without_mend(Verdict.PROTOCOL))
    assert (found.verdict, found.expected) == (Verdict.PROTOCOL, False)
    assert "padding-attended: a request alone is protocol" in found.evidence[-1].what
    alone = [finding for finding in found.evidence if finding.schedule == "alone"]
    assert alone
    assert not any(finding.known for finding in alone)


def test_an_entry_that_does_not_say_so_is_not_checked():
    assert judged(EndsBehindPadding, without_mend(Verdict.PROTOCOL, right_alone=False)).expected


def test_requests_that_are_right_alone_leave_the_case_as_it_is():
    found = judged(AttendsToPadding, without_mend(Verdict.DIVERGED))
    assert (found.expected, found.unmended) == (True, ("padding-attended",))
    assert not any(finding.mended for finding in found.evidence)


@pytest.mark.parametrize("hidden", [(), ("no_such_schedule",)])
def test_only_requests_of_hidden_schedules_are_run(hidden):
    session = toy_session({"wrong": CallsEveryEndStop})
    assert behind_unmended(session, RAGGED, hidden) == ()


def test_each_request_gets_a_model_of_its_own(monkeypatch):
    session = toy_session({"wrong": ContinuousBatching})
    library = session.registry.libraries["toy"]
    loaded, load = [], library.load
    monkeypatch.setattr(
        type(library), "load", lambda self, *a, **k: loaded.append(1) or load(*a, **k)
    )
    (first, *_) = session.run(RAGGED).schedules
    before = len(loaded)
    behind_unmended(session, RAGGED, (first.name,))
    assert len(loaded) - before > 1
