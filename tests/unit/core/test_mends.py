"""How a mend is declared."""

from conformance.core.faults.declaration import Hits
from conformance.core.faults.patching import replace
from conformance.core.mends import Mend, mend


class Library:
    """Something to repair."""

    answer = 41


def test_a_function_becomes_a_mend_of_its_entries():
    @mend("one-off", "one-off-joint", single_stream=True)
    def the_answer_is_right(hits: Hits):
        """The answer is
        42.

        Not 41.
        """
        hits.hit()
        return replace(Library, "answer", 42)

    assert isinstance(the_answer_is_right, Mend)
    assert the_answer_is_right.name == "the_answer_is_right"
    assert the_answer_is_right.defects == ("one-off", "one-off-joint")
    assert the_answer_is_right.summary == "The answer is 42."
    assert the_answer_is_right.single_stream
    hits = Hits()
    with the_answer_is_right.repair(hits):
        assert Library.answer == 42
    assert (Library.answer, hits.count) == (41, 1)
