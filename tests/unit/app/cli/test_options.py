"""Numbers of options are finite, and not absurd."""

import click
import pytest

from conformance.app.cli.options import FACTOR, GIGABYTES, MINUTES, SECONDS


@pytest.mark.parametrize("kind", [SECONDS, MINUTES, GIGABYTES, FACTOR])
@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e300", "x", "-1"])
def test_what_is_none_is_refused(kind, text):
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)


def test_a_number_is_taken():
    assert SECONDS.convert("2.5", None, None) == 2.5
