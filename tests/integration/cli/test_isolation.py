"""The user's own pytest configuration does not reach ``conformance run``."""


def test_no_setting_of_the_user_s_leaks_in(toy_run, tmp_path):
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --nonsense\nconformance_family = nope\npython_files = *.py\n"
    )
    (tmp_path / "conftest.py").write_text("raise RuntimeError('the conftest was loaded')\n")
    done = toy_run(
        "--family", "calm", "--jobs", "2", PYTEST_ADDOPTS="--nonsense", PYTEST_PLUGINS="x"
    )
    assert done.code == 0, done
    assert done.err == ""


def test_nothing_is_left_in_the_user_s_folder(toy_run):
    done = toy_run("--family", "calm", "--jobs", "2")
    assert list(done.folder.iterdir()) == []
