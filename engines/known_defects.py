"""The tests of each package's known defects, which its test module imports."""

from conformance.checks.expectations import load_expectations


def test_a_script_shows_its_defect(run, package, script):
    done = run(package / "scripts" / script)
    assert "DEFECT:" in done.stderr, done.stdout + done.stderr


def test_every_known_defect_has_its_script(package):
    (known,) = package.glob("conformance_*/known")
    own = {e.id for e in load_expectations().defects}
    found = [e for e in load_expectations(None, [known]).defects if e.id not in own]
    assert found
    assert all((package / entry.script).is_file() for entry in found)
