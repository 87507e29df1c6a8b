"""``--quiet`` and ``--verbose``."""

FAMILIES = ("--family", "broken", "--family", "calm")


def test_a_quiet_run_shows_failures_and_its_last_line(toy_run):
    good = toy_run("--family", "calm", "--quiet")
    assert good.code == 0, good
    assert good.out.startswith("OK: 3 cases, all as expected, in ")
    assert good.out.count("\n") == 1
    bad = toy_run(*FAMILIES, "-q")
    assert bad.code == 1, bad
    assert bad.out.startswith("broken: 1 case fails, at `ragged`: ")
    assert "\ndiverged: toy/broken/ragged/float32/0\n  what:" in bad.out
    assert bad.out.splitlines()[-1].startswith("FAILED: 1 of 6 cases")
    assert "toy 1.2.3" not in bad.out
    assert "totals" not in bad.out


def test_a_verbose_run_shows_each_case_with_workers_too(toy_run):
    done = toy_run(*FAMILIES, "--verbose", "--jobs", "2")
    lines = {line.split("  ")[0] for line in done.out.splitlines() if "/float32/0  0.50 s" in line}
    assert len(lines) == 6, done
    assert {"exact: toy/calm/staggered/float32/0", "diverged: toy/broken/ragged/float32/0"} < lines


def test_a_verbose_run_shows_every_family(toy_run):
    names = " ".join(f"calm{n:02}" for n in range(25))
    scenario = ("--scenario", "repeat")
    assert "  calm07  ." in toy_run("-v", *scenario, TOY_FAMILIES=names).out
    assert "calm07" not in toy_run(*scenario, TOY_FAMILIES=names).out


def test_both_are_refused(toy_run):
    done = toy_run("-q", "-v")
    assert done.code == 2
    assert "--quiet and --verbose: choose one of them" in done.err
