"""A config while rules change it."""

from conformance.tools.new_family.draft import Draft, Place, Tower


def drafted(config, **within):
    """A tower over a config and the object under each name."""
    draft = Draft(config)
    draft.rule = "test"
    places = [Place.of(name, config[name]) for name in within] + [Place.of("", config)]
    return Tower("text", places, draft)


def test_rules_see_the_original_config_not_the_changes_of_others():
    tower = drafted({"size": 100})
    tower.put(("size",), 5, "small")
    assert tower.get("size") == 100
    assert tower.draft.config == {"size": 5}


def test_only_a_change_is_a_decision():
    tower = drafted({"size": 5, "width": 9})
    tower.put(("size",), 5, "small already")
    tower.cap(("width",), 7, "small")
    (decision,) = tower.draft.decisions
    assert (decision.field, decision.before, decision.after) == ("width", 9, 7)
    assert tower.draft.looked == {"size", "width"}


def test_the_last_decision_on_a_field_counts():
    tower = drafted({"size": 100})
    tower.put(("size",), 5, "first")
    tower.put(("size",), 6, "then")
    (decision,) = tower.draft.decisions
    assert (decision.before, decision.after, decision.why) == (100, 6, "then")


def test_every_occurrence_is_set_and_the_inner_one_is_read():
    tower = drafted({"size": 1, "text_config": {"size": 2}}, text_config=True)
    assert tower.get("size") == 2
    tower.put(("size",), 7, "both")
    assert tower.draft.config == {"size": 7, "text_config": {"size": 7}}


def test_what_is_no_number_is_not_capped_and_numbers_keep_their_type():
    config = {"a": [9, 9], "b": True, "c": 9.0, "d": {"e": 9}, "f": None}
    tower = drafted(dict(config))
    tower.cap(tuple(config), 4, "small")
    assert tower.draft.config == config | {"c": 4.0}
    assert isinstance(tower.draft.config["c"], float)


def test_a_default_of_the_library_is_reported_as_such():
    tower = drafted({"size": 100})
    tower.places[0].filled.add("size")
    tower.put(("size",), 5, "small")
    (decision,) = tower.draft.decisions
    assert decision.why == "small; the config left it to the library"
