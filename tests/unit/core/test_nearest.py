"""A name that is written nearly so."""

from conformance.core.nearest import did_you_mean


def test_the_nearest_is_suggested():
    assert did_you_mean("lama", ["llama", "mamba"]) == "; did you mean llama?"
    assert did_you_mean("xyz" * 1000, ["llama"]) == ""
