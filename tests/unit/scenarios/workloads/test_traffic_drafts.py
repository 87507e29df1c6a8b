"""A drafter that goes on from a wrong state is found, though tokens are right."""

import pytest
from miniatures import drafting
from miniatures.library import subject
from miniatures.vision import findings, load_subject

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import together
from conformance.core.verdict import Verdict
from conformance.plugins.mlx_vlm.mends import drafters as mended
from conformance.plugins.mlx_vlm.mends.generation import what_is_not_computed_is_not_said
from conformance.power.faults.mlx_vlm.speculative import drafter_goes_on_from_another_row
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios.workloads.traffic_drafts import TRAFFIC_DRAFTS


@pytest.fixture(scope="module")
def toy():
    return subject()


@pytest.fixture(scope="module")
def nemotron_h():
    return load_subject("nemotron_h")


@pytest.fixture
def said_nothing():
    with what_is_not_computed_is_not_said.repair(Hits()):
        yield


def judged(toy, engine):
    brief = brief_for(toy, engine, 0)
    return judge_batched(toy, engine, TRAFFIC_DRAFTS, TRAFFIC_DRAFTS.make(brief))


def checks(found):
    return {(finding.check, finding.verdict) for finding in found}


def test_right_tokens_of_a_drafter_that_goes_on_from_another_row_are_not_enough(toy):
    assert judged(toy, drafting.Drafting).verdict is Verdict.EXACT
    found = judged(toy, drafting.GoesOnFromAnotherRow).findings
    assert checks(found) == {("drafts", Verdict.DRIFT)}


class AcceptsTheSecond(drafting.Drafting):
    """Accepts a token that the model finds second best."""

    def verify(self, row, draft):
        self.hints = row.hints
        self.start = len(row.produced)
        return super().verify(row, draft)

    def accepted(self, draft, chosen):
        wrong = self.hints.wrong[self.start :]
        agree = [d == c or w == d for d, c, w in zip(draft, chosen, wrong, strict=False)]
        return agree.index(False) if False in agree else len(agree)


def test_a_lax_acceptance_takes_the_second_best_token(toy):
    found = judged(toy, AcceptsTheSecond).findings
    assert Verdict.DIVERGED in {finding.verdict for finding in found}


@pytest.mark.usefixtures("said_nothing")
def test_the_state_of_another_row_is_found_in_a_real_batch(nemotron_h):
    assert findings(nemotron_h, TRAFFIC_DRAFTS, "mtp_equal") == []
    with drafter_goes_on_from_another_row.inject(Hits()):
        found = findings(nemotron_h, TRAFFIC_DRAFTS, "mtp_equal")
    assert checks(found) == {("drafts", Verdict.DRIFT)}


@pytest.mark.usefixtures("said_nothing")
def test_padding_that_the_drafter_reads_is_found_and_mended(nemotron_h):
    assert checks(findings(nemotron_h, TRAFFIC_DRAFTS, "mtp_unlike")) == {("drafts", Verdict.DRIFT)}
    with together(mended.padding_is_masked_in_the_drafter.repair(Hits())):
        assert findings(nemotron_h, TRAFFIC_DRAFTS, "mtp_unlike") == []
