"""The checks: each looks for one kind of error in a schedule that was run and returns findings.

Pure functions of recordings: code that needs a model or an engine is in ``run/judging/``.
"""

from conformance.checks.claims import check_claims
from conformance.checks.contract_counts import check_cost
from conformance.checks.drafts import check_drafts
from conformance.checks.draws import check_draws
from conformance.checks.dtypes import check_dtypes
from conformance.checks.failure import check_failure
from conformance.checks.forced import check_forced
from conformance.checks.free import check_free
from conformance.checks.half_precision import check_half_precision
from conformance.checks.leak import check_leak
from conformance.checks.nonfinite import check_nonfinite
from conformance.checks.play import Check, Play
from conformance.checks.policy import check_policy
from conformance.checks.pool_rules import check_pooled
from conformance.checks.probe import check_probes
from conformance.checks.protocol import check_protocol
from conformance.checks.reuse import check_reused
from conformance.checks.seeds import check_seeds
from conformance.checks.stability import check_stability
from conformance.checks.statistics import check_statistics
from conformance.checks.store_rules import check_stored
from conformance.checks.twins import check_twins

CHECKS: tuple[Check, ...] = (
    check_failure,
    check_nonfinite,
    check_claims,
    check_protocol,
    check_forced,
    check_free,
    check_half_precision,
    check_draws,
    check_seeds,
    check_twins,
    check_drafts,
    check_stability,
    check_dtypes,
    check_leak,
    check_cost,
    check_statistics,
    check_stored,
    check_pooled,
    check_reused,
    check_policy,
    check_probes,
)

__all__ = ["CHECKS", "Check", "Play"]
