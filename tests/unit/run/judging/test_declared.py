"""An engine that declares how it reuses prefixes must keep to it."""

import pytest
from miniatures.caching import KeepsPrefixes
from miniatures.library import subject

from conformance.core.prefix_reuse import PrefixReuse
from conformance.core.verdict import Verdict
from conformance.run.judging.judge import brief_for, judge_batched
from conformance.scenarios.prefix_caching import PREFIX_CACHING


@pytest.fixture(scope="module")
def toy():
    return subject()


def findings(toy, rules):
    """Those about an engine that keeps blocks of four tokens at once, whatever it declares."""

    class Declares(KeepsPrefixes):
        prefix_reuse = rules

    made = PREFIX_CACHING.make(brief_for(toy, Declares, 0))
    return judge_batched(toy, Declares, PREFIX_CACHING, made).findings


@pytest.mark.parametrize(
    ("rules", "what"),
    [
        (PrefixReuse(smallest=20), "reused 16 tokens of the prompt, fewer than the smallest"),
        (PrefixReuse(block_size=16), "reused 20 tokens of the prompt, no whole blocks of 16"),
        (PrefixReuse(on_completion=True), "of which requests that had ended hold 0"),
    ],
)
def test_a_declaration_that_is_not_kept_breaks_the_protocol(toy, rules, what):
    found = [f for f in findings(toy, rules) if f.check == "protocol"]
    assert {finding.verdict for finding in found} == {Verdict.PROTOCOL}
    assert any(what in finding.what for finding in found)
    assert all(f"PrefixReuse({rules})" in finding.expected for finding in found)


def test_a_declaration_that_is_kept_is_fine(toy):
    assert findings(toy, PrefixReuse(smallest=4, block_size=2)) == ()
