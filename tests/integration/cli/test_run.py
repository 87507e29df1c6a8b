"""``conformance run`` as a whole: what it prints and how it ends."""


def test_all_as_expected_ends_with_0(toy_run):
    done = toy_run("--family", "calm", "--family", "tied")
    assert done.code == 0, done
    assert "OK: 6 cases, all as expected" in done.out
    assert done.err == ""


def test_an_unexpected_verdict_ends_with_1_and_is_reported_in_five_parts(toy_run):
    done = toy_run("--family", "broken")
    assert done.code == 1, done
    message = done.out[done.out.index("\ndiverged: toy/broken/ragged/float32/0\n  what") :]
    labels = [line.split(":")[0].strip() for line in message.splitlines()[2:7]]
    assert labels == ["what", "where", "expected", "cause", "rerun"]
    assert "token 17; got token 93 (difference 1.25, margin 0.42, noise 1.2e-05 nats)" in message
    assert "conformance show toy/broken/ragged/float32/0" in message
    assert "FAILED: 1 of 3 cases not as expected" in done.out
    assert "slowest" not in toy_run("--family", "calm", "--durations", "0").out


def test_versions_and_device_come_first(toy_run):
    done = toy_run("--family", "calm")
    assert "toy 1.2.3; abacus" in done.out.splitlines()[0]


def test_a_mistake_of_ours_is_a_verdict_too(toy_run):
    done = toy_run("--family", "clumsy", "--json", "r.jsonl")
    assert done.code == 1, done
    assert done.verdicts()["clumsy/ragged"] == "crash"
    assert "RuntimeError: the harness stumbled" in done.out


def test_progress_is_plain_lines_where_there_is_no_terminal(toy_run):
    done = toy_run("--family", "broken")
    assert "\x1b" not in done.out
    assert "\r" not in done.out
    before = done.out.index("\ndiverged: toy/broken/ragged/float32/0\n")
    assert before < done.out.index("what:"), "an unexpected verdict is shown as soon as it is there"
