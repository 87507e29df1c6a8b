"""``--junit``."""

import junitparser


def test_the_run_leaves_a_file_that_parsers_read(toy_run, tmp_path):
    done = toy_run("--family", "broken", "--family", "calm", "--junit", "j.xml", "-q")
    assert done.code == 1, done
    (suite,) = junitparser.JUnitXml.fromfile(str(tmp_path / "j.xml"))
    assert (suite.name, suite.tests, suite.failures) == ("toy float32", 6, 1)


def test_a_folder_that_is_not_there_is_reported_before_anything_is_run(toy_run):
    done = toy_run("--family", "calm", "--junit", "no/j.xml")
    assert done.code == 2
    assert done.err.startswith("conformance: --junit: there is no folder")
