"""Properties of mlx-lm's own functions: what is known of them, and that they detect a defect."""

from mlx_lm.models.cache import LRUPromptCache

from conformance.plugins.mlx_lm.properties import properties

KEPT = {one.name: one for one in properties() if one.name.startswith("kept")}


def test_the_longest_prefix_is_found_but_for_one_of_one_token():
    assert KEPT["kept: the longest prefix"].problem() == ""
    assert "those of 0 are found" in KEPT["kept: a prefix of one token"].problem()


def test_a_rest_that_is_too_short_is_detected(monkeypatch):
    right = LRUPromptCache.fetch_nearest_cache

    def shortened(self, model, tokens):
        return right(self, model, tokens[:3])

    monkeypatch.setattr(LRUPromptCache, "fetch_nearest_cache", shortened)
    said = "of (2,) tokens kept those of 2 are found, [7] are left"
    assert KEPT["kept: the longest prefix"].problem() == said
