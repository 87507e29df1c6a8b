"""The reviewed limits: each contract says what it counts and why so much is needed."""

import pytest

from conformance.core.contracts import Contract, Limit, contracts
from conformance.run.registry import build_registry


@pytest.mark.parametrize("name", contracts().by_name)
def test_a_contract_has_its_reasons(name):
    contract = contracts().by_name[name]
    assert contract.text
    assert contract.unit
    assert contract.limit >= 0
    assert contract.why
    assert all(limit.why for limit in contract.engines.values())


def test_an_engine_that_is_built_otherwise_has_a_limit_of_its_own():
    contract = Contract("work", "rows", 1.0, "it is needed", {"pads": Limit(2.0, "it pads")})
    assert (contract.limit_of("pads"), contract.limit_of("other")) == (2.0, 1.0)


def test_the_families_that_are_counted_are_there():
    known = build_registry().families
    for chosen in (contracts().families, contracts().quantized, contracts().long):
        assert chosen
        assert {(lib, name) for lib, names in chosen.items() for name in names} <= known.keys()
