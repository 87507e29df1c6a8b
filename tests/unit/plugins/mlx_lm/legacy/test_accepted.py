"""Arguments for functions that take fewer of them."""

import pytest

from conformance.core.errors import Unsupported
from conformance.plugins.mlx_lm.legacy.accepted import accepted


def takes_two(model, size=1):
    """Of an old release."""


def test_what_is_none_is_left_out_where_it_is_unknown():
    assert accepted(takes_two, {"size": None, "max_kv_size": None}) == {"size": None}


def test_what_is_given_and_unknown_is_refused_by_name():
    with pytest.raises(Unsupported, match="takes_two does not support samplers"):
        accepted(takes_two, {"size": 2, "samplers": [None]})


def test_a_function_that_takes_any_gets_all():
    assert accepted(lambda **_: None, {"samplers": 1}) == {"samplers": 1}
