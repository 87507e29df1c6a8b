"""What must be the same on all machines."""

from conformance.app.cluster.facts import difference, facts


def test_versions_and_code_are_known():
    assert {"Python", "mlx", "mlx-lm", "source of mlx-conformance"} <= facts().keys()
    assert all(facts().values())


def test_another_version_and_a_missing_one_are_said_in_a_sentence():
    mine = {"mlx": "1", "numpy": "2"}
    assert difference(mine, dict(mine), "w") == ""
    assert difference(mine, mine | {"mlx": "0"}, "tcp://w") == (
        "worker tcp://w has mlx 0, this machine 1: make them the same"
    )
    assert "has numpy none" in difference(mine, {"mlx": "1"}, "w")
