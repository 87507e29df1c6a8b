"""The snapshot extension: what can be written, and when a golden matches."""

import pytest
from miniatures import wrong
from miniatures.goldens import SensitiveLibrary, staged
from miniatures.library import subject
from miniatures.right import ContinuousBatching
from syrupy.data import Snapshot, SnapshotCollection

from conformance.app.pytest_plugin.goldens import GoldenExtension, Observed
from conformance.core.errors import GoldenError
from conformance.tools.golden.format import load_golden, to_text


class Heavier(SensitiveLibrary):
    scale = 1.01


def observed(engine=ContinuousBatching, library=SensitiveLibrary):
    return Observed(subject(library()), (engine,), None)


def matches(value, stored):
    extension = GoldenExtension()
    text = extension.serialize(value)
    found = extension.matches(serialized_data=text, snapshot_data=stored)
    return found, list(extension.diff_lines(text, stored))


def written(tmp_path, text):
    collection = SnapshotCollection(location=str(tmp_path / "toy.json"))
    collection.add(Snapshot("golden[toy/toy]", data=text))
    GoldenExtension.write_snapshot_collection(snapshot_collection=collection)


def test_only_what_passed_the_gate_has_a_goldens_text(tmp_path):
    extension = GoldenExtension()
    golden = staged()
    written(tmp_path, extension.serialize(golden))
    assert load_golden(tmp_path / "toy.json") == golden.golden


@pytest.mark.parametrize(
    "value", ["text", 1.0, {"a": 1}, staged().golden], ids=lambda v: type(v).__name__
)
def test_what_is_neither_staged_nor_observed_is_refused(value):
    with pytest.raises(TypeError, match="a golden is made from the oracle, not from a"):
        GoldenExtension().serialize(value)


def test_what_was_observed_cannot_be_written(tmp_path):
    text = GoldenExtension().serialize(observed(wrong.AttendsToPadding))
    with pytest.raises(GoldenError, match="not JSON"):
        written(tmp_path, text)
    assert list(tmp_path.iterdir()) == []


def test_an_observation_matches_what_holds():
    assert matches(observed(), to_text(staged().golden)) == (True, [])


def test_a_wrong_batch_does_not_match_and_says_where():
    found, report = matches(observed(wrong.AttendsToPadding), to_text(staged().golden))
    assert not found
    assert report[0] == "the batch differs; the single stream still gives the golden"
    assert "request 'two', step " in report[1]
    assert "margin" in report[1]


def test_a_staged_golden_matches_one_that_says_the_same():
    assert matches(staged(), to_text(staged().golden))[0]
    assert not matches(staged(Heavier()), to_text(staged().golden))[0]
    assert not matches(staged(), "{")[0], "what is damaged is written anew"


def test_an_observation_tells_what_is_damaged():
    with pytest.raises(GoldenError, match=r"golden/toy/toy\.json: not JSON"):
        matches(observed(), "{")
