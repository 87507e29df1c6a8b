"""``--dtype``."""


def test_each_dtype_is_a_lane_with_a_matrix(toy_run):
    done = toy_run(
        "--family", "calm", "--dtype", "float16", "--dtype", "bfloat16", "--json", "r.jsonl"
    )
    assert [r["dtype"] for r in done.results()] == ["float16"] * 3 + ["bfloat16"] * 3
    assert "toy float16: 1 family x 3 scenarios" in done.out
    assert "toy bfloat16: 1 family x 3 scenarios" in done.out


def test_the_default_is_float32(toy_run):
    done = toy_run("--family", "calm", "--json", "r.jsonl")
    assert {r["dtype"] for r in done.results()} == {"float32"}


def test_an_unknown_dtype_is_refused(toy_run):
    done = toy_run("--dtype", "float8")
    assert done.code == 2
    assert "float8" in done.err
