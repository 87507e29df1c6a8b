"""A full-size config made small: what every rule must keep."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.core.errors import AdoptionError
from conformance.tools.new_family import shrink as module
from conformance.tools.new_family.config_checks import examine
from conformance.tools.new_family.shrink import TEXT_RULES, VISION_RULES, shrink
from conformance.tools.new_family.widths import VOCAB

CONFIGS = Path(__file__).parents[3] / "configs"
# These leave sizes to the library, so they are shrunk in test_making.py, which asks it.
INCOMPLETE = {"gemma-3-4b-it"}
NAMES = sorted({path.stem for path in CONFIGS.glob("*.json")})
FOLDERS = sorted(path.name for path in CONFIGS.iterdir() if path.is_dir())
COMPLETE = [name for name in (*NAMES, *FOLDERS) if name not in INCOMPLETE]


def text_of(config):
    """The fields of the language model."""
    return config.get("text_config", config)


def test_there_are_at_least_twenty_shapes():
    assert len(NAMES) + len(FOLDERS) >= 40
    assert len({json.loads((CONFIGS / f"{n}.json").read_text())["model_type"] for n in NAMES}) >= 30


@pytest.mark.parametrize("name", COMPLETE)
def test_a_config_becomes_small_keeps_its_structure_and_then_stays(name, published):
    full = published(name)
    before = copy.deepcopy(full)
    small = shrink(full)
    assert full == before, "the config that was given is not touched"
    assert small.unshrunk == ()
    was, now = text_of(full), text_of(small.config)
    _same_heads(was, now)
    _same_routing(was, now)
    _same_layers(was, now)
    assert small.config.get("vocab_size", now.get("vocab_size")) <= VOCAB
    numbers = [d.after for d in small.decisions if isinstance(d.after, int | float)]
    assert max(numbers) <= 1000
    assert shrink(small.config).config == small.config


def _same_heads(was, now):
    if not (was.get("num_attention_heads") and was.get("num_key_value_heads")):
        return
    kinds = []
    for fields in (was, now):
        heads, kv = fields["num_attention_heads"], fields["num_key_value_heads"]
        kinds.append("MHA" if heads == kv else "MQA" if kv == 1 else "GQA")
        assert heads % kv == 0
    assert kinds[0] == kinds[1]
    if was.get("head_dim") and not was.get("kv_lora_rank"):
        own = [f["head_dim"] * f["num_attention_heads"] != f["hidden_size"] for f in (was, now)]
        assert own[0] == own[1]


def _same_routing(was, now):
    for count in ("num_experts", "n_routed_experts", "num_local_experts"):
        if (was.get(count) or 0) > 1:
            chosen = now.get("num_experts_per_tok", now.get("num_experts_per_token"))
            assert chosen < now[count] <= 8
            groups, left = now.get("n_group") or 1, now.get("topk_group") or 1
            assert now[count] // groups >= 2
            assert chosen <= left * (now[count] // groups)
            assert (groups > 1) == ((was.get("n_group") or 1) > 1)
    dense = "first_k_dense_replace"
    if dense in was:
        assert (was[dense] > 0) == (now[dense] > 0)
        assert now[dense] < now["num_hidden_layers"]


def _same_layers(was, now):
    if "layer_types" in was:
        assert set(now["layer_types"]) == set(was["layer_types"])
        assert len(now["layer_types"]) == now["num_hidden_layers"]
        assert set(now["layer_types"][:-1]) == set(was["layer_types"])
    if "hybrid_override_pattern" in was:
        assert set(now["hybrid_override_pattern"]) == set(was["hybrid_override_pattern"])
        assert len(now["hybrid_override_pattern"]) == now["num_hidden_layers"]
    if was.get("sliding_window"):
        assert now["sliding_window"] == 8


def test_fields_that_named_one_token_still_do(published):
    full = published("Phi-4-mini-instruct")
    small = shrink(full).config
    assert full["bos_token_id"] == full["eos_token_id"] == full["pad_token_id"]
    assert small["bos_token_id"] == small["eos_token_id"] == small["pad_token_id"]


def test_every_special_token_is_in_the_vocabulary_and_behind_the_text(published):
    small = shrink(published("Qwen2.5-VL-7B-Instruct"))
    ids = [v for k, v in small.config.items() if k.endswith("_token_id")]
    assert len(ids) == len(set(ids)) == 7
    assert all(small.text_end <= token < small.config["vocab_size"] for token in ids)


def test_sections_of_m_rope_share_half_a_head(published):
    small = shrink(published("Qwen2.5-VL-7B-Instruct")).config
    assert sum(small["rope_scaling"]["mrope_section"]) == 16 // 2
    assert small["hidden_size"] // small["num_attention_heads"] == 16


def test_quantization_is_dropped_and_reported(published):
    small = shrink(published("DeepSeek-V3"))
    (decision,) = [d for d in small.decisions if d.field == "quantization_config"]
    assert "quantization_config" not in small.config
    assert decision.after is None
    assert "drawn" in decision.why


def test_what_no_rule_knows_is_named_with_the_reason(published):
    full = published("Qwen3-8B") | {
        "mystery_size": 8192,
        "mystery_list": list(range(40)),
        "mystery_object": {"size": 9999},
        "mystery_flag": True,
    }
    left = {u.field: u.why for u in shrink(full).unshrunk}
    assert set(left) == {"mystery_size", "mystery_list", "mystery_object"}
    assert "number" in left["mystery_size"]
    assert "list" in left["mystery_list"]


def test_each_decision_has_field_from_to_and_why(published):
    small = shrink(published("Mixtral-8x7B-v0.1"))
    fields = {d.field: d for d in small.decisions}
    experts = fields["num_local_experts"]
    assert (experts.before, experts.after, experts.rule) == (8, 4, "expert routing")
    assert all(d.why and d.rule and d.before != d.after for d in small.decisions)


@pytest.mark.parametrize("rule", [*TEXT_RULES, *VISION_RULES])
def test_no_rule_is_idle(rule, published, monkeypatch):
    """Without it some config comes out otherwise, and it is right to be there."""
    names = [name for name in COMPLETE if rule in TEXT_RULES or "vision_config" in published(name)]
    with_it = {name: shrink(published(name)) for name in names}
    for table in ("TEXT_RULES", "VISION_RULES"):
        rules = {k: v for k, v in getattr(module, table).items() if k != rule}
        monkeypatch.setattr(module, table, rules)
    for name in names:
        try:
            without = shrink(published(name))
        except (AdoptionError, KeyError):
            return  # others build on it
        if (without.config, without.unshrunk) != (with_it[name].config, with_it[name].unshrunk):
            return
    pytest.fail(f"the rule {rule!r} changes none of {len(names)} configs")


def test_a_field_that_a_rule_cannot_read_is_reported_with_the_rule(published):
    full = published("Qwen2-VL-2B-Instruct")
    full["rope_scaling"]["mrope_section"] = []
    with pytest.raises(AdoptionError, match="rule 'rotation scaling' can't read"):
        shrink(full)


@pytest.mark.parametrize("field", ["hidden_size", "vocab_size", "num_hidden_layers"])
def test_a_config_without_a_size_is_reported(field, published):
    full = published("Qwen3-8B")
    del full[field]
    with pytest.raises(AdoptionError, match=f"the config has no '{field}'"):
        shrink(full)


JUNK = [None, 0, -1, 10**6, 2.5, "x", [], [1], ["a"] * 3, {}, {"a": 1}, True, [[1]]]
JUNK += [{"type": None}, {"rope_theta": "x"}, {"mrope_section": [0, 0]}, {"short_factor": []}]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(COMPLETE), st.data())
def test_junk_in_a_field_is_reported_or_borne(name, data):
    alone = CONFIGS / f"{name}.json"
    config = json.loads((alone if alone.is_file() else CONFIGS / name / "config.json").read_text())
    fields = config.get("text_config", config) if data.draw(st.booleans()) else config
    for _ in range(data.draw(st.integers(1, 3))):
        fields[data.draw(st.sampled_from(sorted(fields)))] = data.draw(st.sampled_from(JUNK))
    message = ""
    try:
        examine(config)
        shrink(config)
    except AdoptionError as error:
        message = str(error)
    assert "\n" not in message
