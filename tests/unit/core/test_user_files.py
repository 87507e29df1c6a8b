"""What is wrong with a user's JSON file is reported with its name."""

import os

import pytest

from conformance.core.errors import AdoptionError, CheckpointError
from conformance.core.user_files import check_regular, read_object, read_text, read_toml, typed_json


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


HOSTILE = {
    "deep": (b"[" * 100_000 + b"]" * 100_000, "nested"),
    "deep for who reads it later": (b'{"a": ' * 300 + b"1" + b"}" * 300, "nested more than 200"),
    "digits": (b'{"a": ' + b"9" * 5000 + b"}", "thousands of digits"),
    "half of a character": (rb'{"a": "\ud800"}', "half of a character"),
    "number": (b"7", "must be a JSON object, is a int"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_end_the_process_or_its_time_is_refused(tmp_path, name):
    path = tmp_path / "config.json"
    data, words = HOSTILE[name]
    path.write_bytes(data)
    with pytest.raises(AdoptionError, match=f"config.json: .*{words}"):
        read_object(path, AdoptionError)


def test_a_mark_before_the_text_is_no_part_of_it(tmp_path):
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n')
    assert read_object(tmp_path / "a.json", AdoptionError) == {"a": 1}


def test_a_pipe_a_device_and_a_folder_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # nobody writes to it
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name, words in (("pipe", "is a pipe"), ("endless", "is a device"), ("", "Is a directory")):
        with pytest.raises(AdoptionError, match=f"can't be read: {words}"):
            read_text(tmp_path / name, AdoptionError)


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path):
    with (tmp_path / "large").open("wb") as file:
        file.truncate(10**12)  # without taking room on the disk
    with pytest.raises(AdoptionError, match="has more than 32 MB"):
        read_text(tmp_path / "large", AdoptionError)


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 3000, "a = " + "9" * 5000, "a = [", "a = 1\na = 2"]
)
def test_toml_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(AdoptionError, match=r"a\.toml: "):
        read_toml(tmp_path / "a.toml", AdoptionError)


def test_a_field_of_another_type_is_named():
    with pytest.raises(AdoptionError, match=r"w: Expected `int`, got `str` - at `\$\[\.\.\.\]`"):
        typed_json('{"a": "b"}', dict[str, int], "w", AdoptionError)
    with pytest.raises(AdoptionError, match=r"w: .*too deep"):
        typed_json(b"[" * 100_000, list, "w", AdoptionError)


@pytest.mark.parametrize("link", [False, True])
def test_a_folder_with_a_pipe_or_a_device_is_refused_before_it_is_read(tmp_path, link):
    (tmp_path / "right.json").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "nowhere").symlink_to("missing")
    check_regular(tmp_path, CheckpointError)
    if link:
        (tmp_path / "generation_config.json").symlink_to("/dev/zero")
    else:
        os.mkfifo(tmp_path / "generation_config.json")
    what = "a device" if link else "a pipe"
    with pytest.raises(CheckpointError, match=f"generation_config.json: can't be read: is {what}"):
        check_regular(tmp_path, CheckpointError)
