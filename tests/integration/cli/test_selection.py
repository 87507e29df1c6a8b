"""``--engine``, ``--family``, ``--scenario``, ``--dtype``, ``--seed``: which cases are run."""

import itertools

import pytest


@pytest.mark.parametrize(
    ("options", "families", "scenarios", "dtypes", "seeds"),
    [
        (("--family", "c*m", "--family", "quiet"), ["calm", "quiet"], None, ["float32"], [0]),
        (
            ("--family", "calm", "--scenario", "r*"),
            ["calm"],
            ["repeat", "ragged"],
            ["float32"],
            [0],
        ),
        (
            ("--family", "calm", "--dtype", "float16", "--dtype", "bfloat16"),
            *(["calm"], None, ["float16", "bfloat16"], [0]),
        ),
        (("--family", "tied", "--seed", "3", "--seed", "5"), ["tied"], None, ["float32"], [3, 5]),
    ],
)
def test_cases_are_selected(toy_run, options, families, scenarios, dtypes, seeds):
    done = toy_run(*options, "--json", "r.jsonl", "--durations", "2")
    assert done.code == 0, done
    names = scenarios or ["repeat", "ragged", "staggered"]
    found = {(r["family"], r["scenario"], r["dtype"], r["seed"]) for r in done.results()}
    assert found == set(itertools.product(families, names, dtypes, seeds))
    assert len(done.results()) == len(found)
    for dtype in dtypes:  # a matrix for each; seeds share a cell
        assert f"toy {dtype}: {len(families)} famil" in done.out
        assert f" x {len(names)} scenarios" in done.out
    assert "slowest 2 cases" in done.out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--engine", "warp"), "conformance: no engine matches 'warp'; there are toy (`conformanc"),
        (("--family", "nope*"), "conformance: no family matches 'nope*'; there are "),
        (("--scenario", "nope"), "conformance: no scenario matches 'nope'"),
        (("--dtype", "float8"), "float8"),
        (("--seed", "-1"), "-1 is not in the range"),
    ],
)
def test_what_cannot_be_selected_is_refused(conformance, options, sentence):
    engine = () if "--engine" in options else ("--engine", "toy")
    done = conformance("run", *engine, *options)
    assert (done.code, done.out) == (2, ""), done
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_the_default_engine_is_mlx_lm(conformance):
    done = conformance("run", "--family", "calm")
    assert done.code == 2, "the toy plugin brings no such engine"
    assert "no engine matches 'mlx_lm'" in done.err
