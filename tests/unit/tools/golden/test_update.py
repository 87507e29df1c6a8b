"""A golden made anew: proposed, then accepted."""

from pathlib import Path

import msgspec
import pytest
from miniatures.goldens import SensitiveLibrary
from miniatures.library import family

from conformance.core.errors import GoldenError, ModelError, Unsupported
from conformance.tools.golden.changes import Kind
from conformance.tools.golden.format import Verification, load_golden, put_verified, to_text
from conformance.tools.golden.update import accept, propose

FAMILY = family()
OTHER = msgspec.structs.replace(FAMILY, name="other")


class Heavier(SensitiveLibrary):
    scale = 1.5


class Numb(SensitiveLibrary):
    nats = 0.0


class Lost(SensitiveLibrary):
    def load(self, family, *, dtype, seed):
        raise ModelError(f"{family.name}: loading failed")


class Refusing(SensitiveLibrary):
    def load(self, family, *, dtype, seed):
        raise Unsupported("no abacus is so large")


class Stumbling(SensitiveLibrary):
    def load(self, family, *, dtype, seed):
        raise IndexError("list index\nout of range")


def proposal(root, library=SensitiveLibrary, of=FAMILY):
    return propose((library(), of), root=root, expectations=None)


def files(root):
    return {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_nothing_is_written_before_it_is_accepted(tmp_path):
    found = proposal(tmp_path)
    assert (found.label, found.changes.kind, found.writes) == ("toy/toy", Kind.NEW, True)
    assert files(tmp_path) == {}
    assert accept([found]) == (tmp_path / "toy" / "toy.json",)
    assert load_golden(tmp_path / "toy" / "toy.json") == found.staged.golden


def test_an_unchanged_file_is_not_touched(tmp_path):
    accept([proposal(tmp_path)])
    path = tmp_path / "toy" / "toy.json"
    before = path.stat()
    found = proposal(tmp_path)
    assert (found.changes.kind, found.writes) == (Kind.UNCHANGED, False)
    assert accept([found]) == ()
    after = path.stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


def test_what_changed_is_written_and_the_rest_stays_to_the_byte(tmp_path):
    accept([proposal(tmp_path), proposal(tmp_path, of=OTHER)])
    before = files(tmp_path)
    accept([proposal(tmp_path, Heavier), proposal(tmp_path, of=OTHER)])
    after = files(tmp_path)
    assert after["toy.json"] != before["toy.json"]
    assert after["other.json"] == before["other.json"]


@pytest.mark.parametrize(
    ("library", "text", "unsupported"),
    [
        (Numb, "toy/toy: no golden: the model is insensitive", False),
        (Lost, "toy: loading failed", False),
        (Refusing, "no abacus is so large", True),
        (Stumbling, "IndexError: list index out of range", False),
    ],
)
def test_a_refusal_has_a_reason_and_leaves_the_old_file(tmp_path, library, text, unsupported):
    accept([proposal(tmp_path)])
    before = files(tmp_path)
    found = proposal(tmp_path, library)
    assert found.refused.startswith(text)
    assert (found.unsupported, found.staged, found.writes) == (unsupported, None, False)
    assert accept([found]) == ()
    assert files(tmp_path) == before


def test_a_damaged_file_is_replaced_and_reported(tmp_path):
    accept([proposal(tmp_path)])
    path = tmp_path / "toy" / "toy.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    found = proposal(tmp_path)
    assert "not JSON" in found.damaged
    accept([found])
    assert path.read_bytes() == whole


def test_what_was_verified_stays_so_as_long_as_recipe_and_release_do(tmp_path):
    accept([proposal(tmp_path)])
    path = tmp_path / "toy" / "toy.json"
    proof = Verification("transformers 5", 1e-6, 6)
    put_verified(path, proof)
    assert not proposal(tmp_path).writes
    old = load_golden(path)
    source = msgspec.structs.replace(old.provenance, oracle="held against nothing")
    path.write_text(to_text(msgspec.structs.replace(old, provenance=source)))
    accept([proposal(tmp_path)])
    assert load_golden(path) == old
    accept([proposal(tmp_path, Heavier)])
    assert load_golden(path).provenance.verified is None, "other weights are not verified"


def test_a_failure_in_the_middle_leaves_every_file_whole(tmp_path, monkeypatch):
    names = [f"f{n}" for n in range(5)]
    of = [msgspec.structs.replace(FAMILY, name=name) for name in names]
    accept([proposal(tmp_path, of=one) for one in of])
    before = files(tmp_path)
    proposals = [proposal(tmp_path, Heavier, of=one) for one in of]
    replaced = []
    replace = Path.replace

    def fails_at_the_third(self, target):
        replaced.append(target)
        if len(replaced) == 3:
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", fails_at_the_third)
    with pytest.raises(GoldenError, match=r"f2\.json: cannot write the golden: No space left"):
        accept(proposals)
    after = files(tmp_path)
    assert [name for name in before if after[name] != before[name]] == ["f0.json", "f1.json"]
    assert after.keys() == before.keys()
    for path in tmp_path.rglob("*.json"):
        load_golden(path)
