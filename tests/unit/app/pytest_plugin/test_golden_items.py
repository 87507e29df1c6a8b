"""The snapshot extension: what can be written, and when a golden matches."""

import pytest
from miniatures import wrong
from miniatures.goldens import SensitiveLibrary, staged
from miniatures.library import family
from miniatures.right import ContinuousBatching
from syrupy.data import Snapshot, SnapshotCollection

from conformance.app.pytest_plugin.golden_items import GoldenExtension
from conformance.core.errors import GoldenError
from conformance.tools.golden.checking import check
from conformance.tools.golden.format import golden_path, load_golden, to_text
from conformance.tools.golden.staging import propose


class Heavier(SensitiveLibrary):
    scale = 1.01


@pytest.fixture
def root(tmp_path):
    """The folder of a golden that holds."""
    path = golden_path(tmp_path / "golden", "toy", "toy")
    path.parent.mkdir(parents=True)
    path.write_text(to_text(staged().golden))
    return tmp_path / "golden"


def checked(root, engine=ContinuousBatching):
    pair = (SensitiveLibrary(), family())
    return check(pair, root=root, engines=[engine], files_only=False, expectations=None)


def proposed(root, library=SensitiveLibrary):
    return propose((library(), family()), root=root, expectations=None)


def matches(value):
    extension = GoldenExtension()
    text = extension.serialize(value)
    return extension.matches(serialized_data=text, snapshot_data="what is in the file")


def written(tmp_path, text):
    collection = SnapshotCollection(location=str(tmp_path / "toy.json"))
    collection.add(Snapshot("golden[toy/toy]", data=text))
    GoldenExtension.write_snapshot_collection(snapshot_collection=collection)


def test_only_what_passed_the_gate_has_a_goldens_text(tmp_path, root):
    proposal = proposed(root)
    written(tmp_path, GoldenExtension().serialize(proposal))
    assert load_golden(tmp_path / "toy.json") == proposal.staged.golden


@pytest.mark.parametrize(
    "value", ["text", 1.0, {"a": 1}, staged().golden], ids=lambda v: type(v).__name__
)
def test_what_is_neither_proposed_nor_checked_is_refused(value):
    with pytest.raises(TypeError, match="a golden is made from the oracle, not from a"):
        GoldenExtension().serialize(value)


def test_what_was_checked_cannot_be_written(tmp_path, root):
    text = GoldenExtension().serialize(checked(root, wrong.AttendsToPadding))
    with pytest.raises(GoldenError, match="not JSON"):
        written(tmp_path, text)
    assert not (tmp_path / "toy.json").exists()


def test_a_check_matches_what_holds_and_nothing_else(root):
    assert matches(checked(root))
    assert not matches(checked(root, wrong.AttendsToPadding))


def test_a_proposal_matches_a_golden_that_says_the_same(root):
    assert matches(proposed(root))
    assert not matches(proposed(root, Heavier))
    golden_path(root, "toy", "toy").write_text("{")
    assert not matches(proposed(root)), "what is damaged is written anew"
