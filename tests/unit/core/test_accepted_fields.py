"""What is passed is compared by value, and what is accepted is read from signatures and sources."""

import ast

from conformance.core.accepted_fields import (
    LeftOut,
    Recorder,
    body_fields_in,
    options_in,
    parameters_of,
    source_tree,
)


class Stop:
    def __init__(self, tokens):
        self.tokens = tokens


class Slots:
    __slots__ = ("tokens",)


def of_place(value):
    def sampler(row):
        return row[value]

    return sampler


def insert(self, prompts, max_tokens=5, *, samplers=None, **more): ...


def values(*objects, folder=""):
    recorder = Recorder(folder=folder)
    for value in objects:
        recorder.add("place", "name", value)
    return [passed.value for passed in recorder.passed]


def test_equal_values_have_one_text_and_others_another():
    for one, equal, other in (
        (1, 1, 2),
        (None, None, 0),
        ([1, 2], (1, 2), [1, 3]),
        ({"a": [1]}, {"a": [1]}, {"a": [2]}),
        (Stop([1]), Stop([1]), Stop([2])),
        (of_place(1), of_place(1), of_place(2)),
        (LeftOut.LEFT_OUT, LeftOut.LEFT_OUT, None),
        (list(range(99)), list(range(99)), [*range(98), 0]),
    ):
        first, second, third = values(one, equal, other)
        assert first == second != third, (one, other)


def test_objects_that_show_nothing_differ_by_identity():
    one, other = Slots(), Slots()
    first, again, second = values(one, one, other)
    assert first == again != second


def test_an_object_that_holds_itself_has_a_text():
    held = Stop([])
    held.tokens.append(held)
    assert values(held)


def test_the_name_of_a_temporary_folder_is_no_value():
    assert values("/tmp/a/other1", folder="/tmp/a") == ["'FOLDER/other1'"]
    assert values("/tmp/b/other1", folder="/tmp/b") == ["'FOLDER/other1'"]


def test_a_list_of_as_many_values_as_rows_is_one_for_each():
    recorder = Recorder(arrival=3)
    recorder.rows("insert", insert, (None, [[1], [2, 3]]), {"samplers": ["a", None]}, count=2)
    found = [(p.name, p.value, p.arrival) for p in recorder.passed]
    assert ("samplers", "'a'", 3) in found
    assert ("samplers", "None", 3) in found
    assert ("max_tokens", "5", 3) in found  # the default of what is not passed
    assert not any(name in {"self", "more"} for name, *_ in found)


def test_a_call_has_defaults_and_what_it_leaves_out_of_others():
    recorder = Recorder()
    recorder.call("insert", insert, (None, []), {"bits": 8}, ("bits", "group"))
    found = {p.name: (p.value, p.arrival) for p in recorder.passed}
    assert found["bits"] == ("8", None)
    assert found["group"] == ("left out", None)
    assert found["samplers"] == ("None", None)


def test_parameters_without_self_and_those_of_variable_number():
    assert parameters_of(insert) == ("prompts", "max_tokens", "samplers")


def test_options_and_fields_that_a_module_reads_by_hand():
    tree = ast.parse(
        "parser.add_argument('--one', '-o', type=int)\n"
        "parser.add_argument('name')\n"
        "self.top = self.body.get('top_p', 1.0)\n"
        "body = self.body\n"
        "body['messages']\n"
        "body.get('tools') or None\n"
        "other.get('no')\n"
    )
    assert options_in(tree) == ("--one",)
    assert set(body_fields_in(tree)) == {"top_p", "messages", "tools"}


def test_the_source_of_a_module_that_is_missing_is_empty():
    assert source_tree("json.decoder").body
    assert not source_tree("json.missing").body
    assert not source_tree("missing_package.module").body
