"""The reviewed limits: each contract says what it counts and why so much is needed."""

from conformance.core.contracts import Contract, Limit, contracts


def test_a_contract_has_its_reasons():
    for name, contract in contracts().items():
        assert contract.text, name
        assert contract.unit, name
        assert contract.limit >= 0, name
        assert contract.why, name
        assert all(limit.why for limit in contract.engines.values()), name


def test_an_engine_that_is_built_otherwise_has_a_limit_of_its_own():
    contract = Contract("work", "rows", 1.0, "it is needed", {"pads": Limit(2.0, "it pads")})
    assert (contract.limit_of("pads"), contract.limit_of("other")) == (2.0, 1.0)
