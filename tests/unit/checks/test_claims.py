"""What an engine says of its work."""

from miniatures.plays import Script

from conformance.checks.claims import check_claims
from conformance.core.trace import Claim, Mode
from conformance.core.verdict import Verdict


def claim(what="prompt tokens", *, holds=False):
    return Claim(what, "4", "4" if holds else "6", holds)


def test_what_holds_is_no_finding():
    script = Script()
    script.free.moments[1].claims = (claim(holds=True),)
    assert check_claims(script.play()) == []


def test_the_first_of_each_kind_is_found_in_each_run():
    script = Script()
    for take in (script.forced, script.free):
        take.moments[1].claims = (claim(holds=True), claim(), claim("rows at once"))
        take.moments[2].claims = (claim(),)
    found = check_claims(script.play())
    assert {(f.mode, f.what.partition(",")[0]) for f in found} == {
        (mode, what) for mode in Mode for what in ("prompt tokens", "rows at once")
    }
    assert len(found) == 4
    assert {(f.verdict, f.expected, f.got) for f in found} == {(Verdict.PROTOCOL, "6", "4")}
    assert all("step 1" in f.what for f in found)
