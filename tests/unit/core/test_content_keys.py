"""Keys change with what they are made of, and with nothing else."""

from conformance.core.content_keys import digest, file_digest, folder_digest, text_digest


def test_where_one_part_ends_and_the_next_begins_counts():
    assert digest([b"ab", b"c"]) != digest([b"a", b"bc"])
    assert text_digest("ab", "c") == digest([b"ab", b"c"])


def test_a_file_counts_by_its_content_and_one_that_cannot_be_read_is_gone(tmp_path):
    assert file_digest(tmp_path / "a.py") == "gone"
    (tmp_path / "a.py").write_text("x = 1")
    before = file_digest(tmp_path / "a.py")
    (tmp_path / "a.py").write_text("x = 2")
    assert file_digest(tmp_path / "a.py") != before


def test_a_folder_counts_by_names_and_contents_linked_folders_too(tmp_path):
    there = tmp_path / "there"
    (there / "__pycache__").mkdir(parents=True)
    (tmp_path / "linked").mkdir()
    (there / "link").symlink_to(tmp_path / "linked")
    (there / "a.py").write_text("x = 1")

    def keys():
        return folder_digest(there), folder_digest(there, kinds={".py"})

    before = keys()
    (there / "__pycache__" / "a.pyc").write_text("compiled")
    assert keys() == before
    (there / "b.txt").write_text("text")
    assert keys()[0] != before[0]
    assert keys()[1] == before[1]
    (there / "a.py").rename(there / "c.py")
    renamed = keys()
    assert renamed[1] != before[1]
    (tmp_path / "linked" / "d.py").write_text("")
    assert keys()[1] != renamed[1]
