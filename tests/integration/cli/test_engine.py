"""``--engine``."""


def test_an_unknown_engine_is_one_sentence(conformance):
    done = conformance("run", "--engine", "warp")
    assert done.code == 2
    assert done.err == (
        "conformance: no engine matches 'warp'; there are toy "
        "(`conformance show engines` shows all)\n"
    )


def test_the_default_is_mlx_lm(conformance):
    done = conformance("run", "--family", "calm")
    assert done.code == 2, "the toy plugin brings no such engine"
    assert "no engine matches 'mlx_lm'" in done.err
