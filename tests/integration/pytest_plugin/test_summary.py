"""The header, and the matrix at the end."""


def test_versions_and_device_are_in_the_header(suite):
    done = suite("--conformance-family", "calm")
    head = done.out[: done.out.index("collected")]
    assert "toy 1.2.3; abacus" in head


def test_the_matrix_comes_once_with_workers_too(suite):
    done = suite("--conformance-family", "broken", "--conformance-family", "calm", "-n", "2")
    assert done.out.count("toy float32: 2 families x 3 scenarios") == 1
    row = next(line for line in done.out.splitlines() if line.startswith("  broken "))
    assert row.split() == ["broken", ".", "X!", "."]
    assert "FAILED: 1 of 6 cases not as expected" in done.out


def test_colour_only_where_pytest_has_it(suite):
    assert "\x1b" not in suite("--conformance-family", "broken").out
    coloured = suite("--conformance-family", "broken", "--color=yes").out
    assert "\x1b[1;31mX!" in coloured


def test_a_stale_expectation_fails_the_session(suite, tmp_path):
    folder = tmp_path / "known"
    folder.mkdir()
    (folder / "toy.toml").write_text(
        'package = "toy"\n[[defect]]\nid = "padding"\nfamilies = ["gone"]\nversions = ">=1"\n'
        'where = "x.py:1"\nwhy = "x"\nscript = "x.py"\nverdicts = { ragged = "diverged" }\n'
    )
    options = ("--conformance-expectations", "known", "-n", "1")
    done = suite(*options, TOY_FAMILIES="calm")
    assert done.code == 1, done
    assert "4 passed" in done.out
    assert "'gone'" in done.out
    assert suite(*options, "-k", "calm", TOY_FAMILIES="calm tied").code == 0
