"""Stages as run lengths, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.core.picture import packed, unpacked
from conformance.core.schedule import Stage

LIVE = (None, Stage.QUEUED, Stage.PREFILL, Stage.DECODE)
ENDS = (Stage.FINISHED, Stage.REMOVED)


def test_stages_are_kept_as_run_lengths():
    stages = [None, None, Stage.QUEUED, Stage.PREFILL, *[Stage.DECODE] * 12, Stage.FINISHED]
    assert packed(stages) == "2-1q1p12d1f"


@given(st.lists(st.sampled_from(LIVE)), st.sampled_from((None, *ENDS)))
def test_what_was_packed_reads_back(live, end):
    stages = (*live, *([end] if end else []))
    assert unpacked(packed(stages)) == stages


@pytest.mark.parametrize("end", ENDS)
def test_of_an_end_only_its_first_step_is_kept(end):
    assert unpacked(packed([Stage.DECODE, end, end, end])) == (Stage.DECODE, end)


@pytest.mark.parametrize("text", ["", "q", "x<script>", "1z", "99999999999d"])
def test_what_is_no_run_length_ends_in_no_huge_list(text):
    assert len(unpacked(text)) <= 9999
