"""Whether the single stream stands alone: engines may agree in error with each other."""

import msgspec
import numpy as np
import pytest
from miniatures.library import ToyLibrary
from miniatures.model import ToyModel
from miniatures.right import ContinuousBatching
from miniatures.sessions import toy_session
from miniatures.wrong import AttendsToPadding

from conformance.core.verdict import MOST_FINDINGS, CaseId, Verdict
from conformance.report.cascades import ODD_ONE_OUT
from conformance.run.diagnosis import diagnose
from conformance.run.judging.judge import brief_for
from conformance.run.odd_one_out import odd_one_out

CASE = CaseId("tested", "calm", "ragged", "float32", 0)


class Forgetful(ToyLibrary):
    """Its single stream has not seen the first token of a prompt."""

    def single_stream(self, model, request, **options):
        shorter = msgspec.structs.replace(request, prompt=request.prompt[1:] or request.prompt)
        return super().single_stream(model, shorter, **options)


class WithoutPass(Forgetful):
    """It has no pass without a cache."""

    def stateless(self, model, request, tokens):
        return None


def opened(library, kind):
    names = {"tested": False, "sure0": True, "sure1": True}
    engines = {name: type(name, (kind,), {"opinion": sure}) for name, sure in names.items()}
    return toy_session(engines, library=library)


def said(library, kind=ContinuousBatching):
    session = opened(library, kind)
    result = session.run(CASE)
    assert result.verdict is Verdict.DIVERGED
    return diagnose(session, CASE, result).evidence[-1].what


def test_a_single_stream_that_is_wrong_is_the_odd_one_out():
    text = said(Forgetful())
    assert text.startswith(f"{ODD_ONE_OUT}: every engine, the reference engines included, gives to")
    assert "and so does the pass without a cache; the single stream has token " in text


def test_engines_that_agree_do_not_outvote_the_pass_without_a_cache():
    assert said(ToyLibrary(), AttendsToPadding).startswith("model: it is diverged on sure0")


def test_nothing_is_claimed_where_there_is_no_such_pass():
    assert said(WithoutPass()).startswith("model: it is diverged on sure0")


class CountsRows(ToyLibrary):
    """Its model's tokens depend on how many rows share a pass, as those of a wrong kernel do."""

    def load(self, family, *, dtype, seed):
        model = super().load(family, dtype=dtype, seed=seed)
        model.__class__ = _CountsRows
        return model


class _CountsRows(ToyModel):
    def __call__(self, rows, **options):
        return np.roll(super().__call__(rows, **options), len(rows) - 1, axis=-1)


def test_what_equal_rows_get_wrong_is_due_to_their_number():
    text = said(CountsRows())
    assert text.startswith("the number of rows: of ")
    assert "equal rows in one pass" in text
    assert text.count(" token ") == 2


@pytest.fixture(scope="module")
def played():
    """A session, the case's schedules, its result, and a right one, without a single finding."""
    session = opened(Forgetful(), ContinuousBatching)
    engine, scenario = session.registry.engines["tested"], session.registry.scenarios["ragged"]
    schedules = scenario.make(brief_for(session.subject(CASE), engine, 0))
    result = session.run(CASE)
    return session.subject(CASE), schedules, result, msgspec.structs.replace(result, evidence=())


def changed(result, **changes):
    """The result with its first wrong token changed."""
    first, *rest = [f for f in result.evidence if f.check == "free"]
    return msgspec.structs.replace(
        result, evidence=(msgspec.structs.replace(first, **changes), *rest)
    )


def test_reference_engines_that_differ_from_each_other_say_nothing(played):
    subject, schedules, result, right = played
    for other in (changed(result, got="token 0"), changed(result, step=9)):
        assert odd_one_out(subject, schedules, result, {"a": result, "b": other}) == ""
    assert odd_one_out(subject, schedules, result, {"a": result, "b": right}) == ""
    fewer = msgspec.structs.replace(result, evidence=result.evidence[:1])
    assert odd_one_out(subject, schedules, result, {"a": fewer}) == ""


def test_what_was_left_out_of_a_full_result_is_not_missed(played):
    subject, schedules, result, _ = played
    first = next(f for f in result.evidence if f.check == "free")
    full = msgspec.structs.replace(result, evidence=(first,) * MOST_FINDINGS)
    assert odd_one_out(subject, schedules, result, {"a": full})


def test_reference_engines_on_the_single_stream_s_side_do_not_outvote_the_pass(played):
    subject, schedules, result, right = played
    text = odd_one_out(subject, schedules, result, {"a": right, "b": right})
    assert text.startswith("single stream or its caches: the engine gives token ")
    assert "the single stream and a, b have token " in text
