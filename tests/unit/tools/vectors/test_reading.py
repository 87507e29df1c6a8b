"""Vectors that do not fit their digests are not believed."""

import hashlib
import json

import msgspec
import pytest

from conformance.core.errors import VectorsError
from conformance.tools.vectors.reading import Manifest, Vectors, sealed


def refusal(folder):
    with pytest.raises(VectorsError) as caught:
        Vectors(folder).golden("toy")
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix(f"{folder}/")


def test_all_files_are_read(vectors):
    found = Vectors(vectors)
    assert found.schedule("toy", "ragged", "moving").schedule.removed_ids == {"b"}
    assert found.golden("toy")["a"].tokens == (5, 6, 7)


@pytest.mark.parametrize("name", ["golden.json", "ragged.json", "model/config.json"])
def test_an_edited_file(vectors, name):
    path = vectors / "toy" / name
    path.write_text(path.read_text() + " ")
    assert refusal(vectors).startswith(f"toy/{name}: its digest is not the one in manifest.json")


@pytest.mark.parametrize("name", ["manifest.json", "toy/golden.json", "toy/model/config.json"])
def test_a_lost_file(vectors, name):
    (vectors / name).unlink()
    assert refusal(vectors) == f"{name}: can't be read: No such file or directory"


def test_an_edited_manifest(vectors):
    path = vectors / "manifest.json"
    path.write_text(path.read_text().replace("abacus", "mill"))
    assert refusal(vectors).startswith("manifest.json: field 'digest' does not fit the content")


def test_another_format(vectors):
    path = vectors / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 7, "more": 1}))
    assert refusal(vectors).startswith("manifest.json: field 'format' is 7, this release reads 1")


def test_a_request_without_a_golden(write_vectors):
    """Pair assertion: also files that fit their digests are held against each other."""
    folder = write_vectors()
    path = folder / "toy" / "ragged.json"
    path.write_text(path.read_text().replace('"golden":{"a":"a"', '"golden":{"a":"x"', 1))
    reseal(folder, "toy/ragged.json")
    with pytest.raises(VectorsError, match="schedule 'plain': request 'a' has no golden"):
        Vectors(folder).scenario("toy", "ragged")


def test_a_request_id_twice(write_vectors):
    folder = write_vectors()
    path = folder / "toy" / "ragged.json"
    path.write_text(path.read_text().replace('"request_id":"b"', '"request_id":"a"', 1))
    reseal(folder, "toy/ragged.json")
    with pytest.raises(VectorsError, match="request 'a': the id is used twice"):
        Vectors(folder).scenario("toy", "ragged")


def test_a_file_that_the_manifest_does_not_name(write_vectors):
    folder = write_vectors()
    reseal(folder, "toy/golden.json", drop=True)
    assert refusal(folder) == "manifest.json: field 'files' of toy lacks toy/golden.json"


def reseal(folder, name, *, drop=False):
    """Give a manifest the digests of what is there now."""
    path = folder / "manifest.json"
    manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    files = manifest.families["toy"].files
    files[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    if drop:
        del files[name]
    path.write_bytes(msgspec.json.encode(sealed(manifest)))


@pytest.mark.parametrize("name", ["/etc/hostname", "toy/../../x", "toy//x", "toy/./x", "toy/\x1bx"])
def test_a_file_outside_of_the_folder(vectors, name):
    """Its digest may be right, and so is that of the manifest: still it is none of ours."""
    path = vectors / "manifest.json"
    found = msgspec.json.decode(path.read_bytes(), type=Manifest)
    family = found.families["toy"]
    family = msgspec.structs.replace(family, files={**family.files, name: "0"})
    changed = msgspec.structs.replace(found, families={"toy": family})
    path.write_bytes(msgspec.json.encode(sealed(changed)))
    assert refusal(vectors).startswith("manifest.json: field 'files' of 'toy' names ")
