"""What an invalid call raised and what it changed are both in the result."""

from conformance.core.invalid_call import watched


def test_a_refusal_that_changes_nothing():
    def refuse():
        raise ValueError("no")

    result = watched("kind", refuse, lambda: {"rows": 1})
    assert (result.kind, result.error, result.changed) == ("kind", "ValueError: no", ())


def test_a_call_that_is_taken_and_what_it_changes():
    rows = []
    result = watched("kind", lambda: rows.append(1), lambda: {"rows": list(rows), "other": 0})
    assert result.error is None
    assert result.changed == ("rows: [] became [1]",)
