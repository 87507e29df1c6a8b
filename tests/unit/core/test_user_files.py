"""What is wrong with a user's JSON file is reported with its name."""

import pytest

from conformance.core.errors import AdoptionError, CheckpointError
from conformance.core.user_files import read_object


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "can't be read: No such file"),
        (b"\xe9", "is not UTF-8 text"),
        (b'{\n "a": }', "not JSON, line 2"),
        (b"[1]", "must be a JSON object, is a list"),
    ],
)
@pytest.mark.parametrize("failed", [AdoptionError, CheckpointError])
def test_what_is_wrong_is_reported(tmp_path, data, words, failed):
    path = tmp_path / "config.json"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(failed, match=f"config.json: {words}"):
        read_object(path, failed)


def test_an_object_is_given(tmp_path):
    (tmp_path / "a.json").write_text('{"a": 1}')
    assert read_object(tmp_path / "a.json", AdoptionError) == {"a": 1}
