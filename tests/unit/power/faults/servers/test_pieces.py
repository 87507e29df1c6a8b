"""What the faults of both servers do to the pieces of two answers at once."""

from types import SimpleNamespace

from conformance.core.faults import Hits
from conformance.power.faults.servers.pieces import ended_by_itself, exchanged, of_another


def pieces(*texts):
    return (SimpleNamespace(text=text) for text in texts)


def in_turns(*answers):
    """The texts of answers of which each gives a piece in turn."""
    found = [[] for _ in answers]
    open_ = list(range(len(answers)))
    while open_:
        for index in list(open_):
            piece = next(answers[index], None)
            if piece is None:
                open_.remove(index)
            else:
                found[index].append(piece.text)
    return found


def test_two_answers_are_exchanged_once_the_second_begins():
    hits = Hits()
    change = exchanged(hits)
    first, second = in_turns(change(pieces("a", "b", "c")), change(pieces("d", "e", "f")))
    assert (first, second) == (["a", "d", "e", "f"], ["b", "c"])
    assert hits.count == 1


def test_a_piece_has_what_another_got():
    hits = Hits()
    change = of_another(hits, "text", only=1)
    assert in_turns(change(pieces("a", "b", "c")), change(pieces("d", "e", "f"))) == [
        ["a", "d", "c"],
        ["d", "b", "f"],
    ]
    assert hits.count == 2
    assert in_turns(of_another(hits, "text")(pieces("a", "b"))) == [["a", "b"]]
    assert hits.count == 2


def test_an_end_by_the_limit_is_said_to_be_another():
    hits = Hits()
    assert [ended_by_itself(hits, reason) for reason in ("length", "stop", None)] == [
        "stop", "stop", None,
    ]  # fmt: skip
    assert hits.count == 1
