"""``--durations``."""


def test_so_many_of_the_slowest_are_listed(toy_run):
    done = toy_run("--family", "calm", "--durations", "2")
    assert "slowest 2 cases" in done.out


def test_none_if_so_wanted(toy_run):
    done = toy_run("--family", "calm", "--durations", "0")
    assert "slowest" not in done.out
