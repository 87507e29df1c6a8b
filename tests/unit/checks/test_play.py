"""What a check gets to see."""

from miniatures.plays import Script


def test_the_row_of_a_token_is_the_one_that_its_request_had_in_that_step():
    play = Script().play()
    forced = play.traces[0]
    assert [play.row(forced, "b", step) for step in range(3)] == [1, 1, 1]
    assert [play.row(forced, "c", step) for step in range(2)] == [2, 2]
    assert play.row(forced, "a", 4) == 0


def test_a_token_that_never_came_has_no_row():
    play = Script().play()
    assert play.row(play.traces[0], "b", 3) is None
    assert play.row(play.traces[0], "nobody", 0) is None


def test_a_row_is_that_of_its_own_step_after_a_filter():
    script = Script()
    script.forced.moments[4].rows = {"a": 5}
    play = script.play()
    assert [play.row(play.traces[0], "a", step) for step in range(5)] == [0, 0, 0, 5, 0]
