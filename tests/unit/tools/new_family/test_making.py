"""Families made of published configs: built by the library, every kind of layer held against it."""

import json
from pathlib import Path

import pytest

from conformance.core.errors import AdoptionError
from conformance.core.family import Facts, Family, load_family
from conformance.core.library import Outline
from conformance.run.registry import build_registry
from conformance.tools.new_family import depths
from conformance.tools.new_family.making import lost_kinds, make, publish, workplace, write_family
from conformance.tools.new_family.source import Source, read_source

CONFIGS = Path(__file__).parents[3] / "configs"
PATHS = sorted(path for path in CONFIGS.iterdir() if path.suffix != ".py")
# The installed family of its module scales its rotations; this config does not.
OTHER_POSITIONS = {"Mistral-7B-v0.1.json": "RoPE"}
# As published; what a config written down from memory would hardly meet by chance.
PARAMETERS = {
    "DeepSeek-V3.json": 671_026_419_200,
    "Jamba-v0.1.json": 51_570_323_328,
    "Llama-3.2-1B.json": 1_235_814_400,
    "Mistral-7B-v0.1.json": 7_241_732_096,
    "Mixtral-8x7B-v0.1.json": 46_702_792_704,
    "OLMoE-1B-7B-0924.json": 6_919_161_856,
    "Qwen2.5-7B-Instruct.json": 7_615_616_512,
    "Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "Qwen3-8B.json": 8_190_735_360,
    "Qwen3-30B-A3B.json": 30_532_122_624,
    "SmolVLM-256M-Instruct": 256_484_928,
    "gemma-2-2b.json": 2_614_341_888,
    "gpt2.json": 124_439_808,
    "starcoderbase-1b.json": 1_137_207_296,
}


@pytest.fixture(scope="module")
def registry():
    return build_registry()


@pytest.fixture(scope="module")
def described():
    """What installed families are made of, each once."""
    known = {}

    def describe(library, family):
        if family.path not in known:
            model = library.load(family, dtype="float32", seed=0)
            known[family.path] = library.describe(model)
        return known[family.path]

    return describe


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem if path.suffix else path.name)
def test_a_published_model_is_made_small_with_every_kind_kept(path, registry, described, tmp_path):
    made = make(read_source(path), registry, tmp_path, library=None)
    count = sum(made.full.parameters.values())
    assert count == PARAMETERS.get(path.name, count)
    assert sum(made.tiny.parameters.values()) < 1_000_000
    assert made.lost == {}
    assert made.unshrunk == ()
    assert load_family(tmp_path / f"{made.family.name}.json").config == made.family.config
    known = registry.families[made.library.name, made.full.module]
    alike = described(made.library, known)
    positions = OTHER_POSITIONS.get(path.name, alike.positions)
    assert made.description.caches == alike.caches
    assert made.description.positions == positions
    assert made.description.states == alike.states
    assert set(alike.inner) <= set(made.description.inner)
    assert made.family.facts.window == known.facts.window
    assert made.family.facts.positions == known.facts.positions
    assert made.family.facts.modalities in (known.facts.modalities, ("text", "image"))


@pytest.mark.parametrize("name", ["gemma-3-1b-it", "DeepSeek-V3", "SmolLM3-3B", "gpt-oss-20b"])
def test_a_rule_that_drops_a_kind_of_layer_is_reported(name, registry, tmp_path, monkeypatch):
    monkeypatch.setattr(depths, "choose", lambda rows, *, least: [0, 1])
    made = make(read_source(CONFIGS / f"{name}.json"), registry, tmp_path, library=None)
    assert made.lost


def test_layers_are_added_while_a_kind_is_lost(registry, tmp_path):
    """That every fourth layer of Llama 4 is global stands in the library's code alone."""
    path = CONFIGS / "Llama-4-Scout-17B-16E-text.json"
    made = make(read_source(path), registry, tmp_path, library=None)
    assert made.family.config["text_config"]["num_hidden_layers"] == 5
    assert made.description.inner == ("ChunkedKVCache", "KVCache")


def test_kinds_are_compared_by_place():
    full = Outline("m", {"layers": frozenset("ab"), "caches": frozenset("k")})
    tiny = Outline("m", {"layers": frozenset("a"), "caches": frozenset("kl")})
    assert lost_kinds(full, tiny) == {"layers": frozenset("b")}


def test_the_library_can_be_chosen(registry, tmp_path):
    path = CONFIGS / "Qwen2-VL-2B-Instruct.json"
    made = make(read_source(path), registry, tmp_path, library="mlx_lm")
    assert made.library.name == "mlx_lm"
    assert made.family.facts.modalities == ("text",)
    assert any(note.startswith("images: left out") for note in made.notes)


def test_own_files_of_a_processor_go_before_those_of_an_installed_family(registry, tmp_path):
    made = make(read_source(CONFIGS / "gemma-3-4b-it"), registry, tmp_path, library=None)
    processor = made.family.facts.processor
    assert processor.markers == {"image": "<start_of_image>"}
    assert processor.files["preprocessor_config.json"]["size"] == {"height": 32, "width": 32}
    assert (
        processor.tokenizer.special["<image_soft_token>"] == made.family.config["image_token_index"]
    )


def test_a_processor_that_fails_leaves_text_and_the_reason(registry, tmp_path):
    source = read_source(CONFIGS / "SmolVLM-256M-Instruct")
    files = {**source.files, "preprocessor_config.json": {"image_processor_type": "Nobody"}}
    unknown = Source("mine", source.path, source.config, files, source.texts, source.roles)
    families = {key: f for key, f in registry.families.items() if f.module != "idefics3"}
    fewer = type(registry)(**{**vars(registry), "families": families})
    made = make(unknown, fewer, tmp_path, library=None)
    assert made.family.facts.modalities == ("text",)
    (note,) = [note for note in made.notes if note.startswith("media: left out")]
    assert len(note) > len("media: left out, the files of its processor are not known ()")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "qwen99"}, "no library can build it: mlx_lm: Model type qwen99 not supp"),
        ({"rms_norm_eps": ...}, "the config lacks 'rms_norm_eps', without which"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"mlp_only_layers": "all"}, "mlx_lm: .*building failed"),
    ],
)
def test_what_cannot_be_built_is_reported_in_one_sentence(
    change, message, registry, tmp_path, capfd
):
    config = json.loads((CONFIGS / "Qwen3-30B-A3B.json").read_text())
    for key, value in change.items():
        if value is ...:
            del config[key]
        else:
            config[key] = value
    source = Source("mine", tmp_path / "mine.json", config)
    with pytest.raises(AdoptionError, match=message) as raised:
        make(source, registry, tmp_path, library=None)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(str(source.path))
    assert capfd.readouterr().err == ""
    assert list(tmp_path.iterdir()) == []


def test_what_stays_large_is_reported_with_its_largest_parameter(registry, tmp_path):
    """An empty tower is what the library makes of it, of full size."""
    config = json.loads((CONFIGS / "Qwen2-VL-2B-Instruct.json").read_text())
    source = Source("mine", tmp_path / "mine.json", config | {"vision_config": {}})
    message = r"still has [\d,]+ parameters \(20,000,000 at most\); the largest is vision_tower"
    with pytest.raises(AdoptionError, match=message):
        make(source, registry, tmp_path, library="mlx_vlm")


def test_an_unknown_library_is_reported(registry, tmp_path):
    with pytest.raises(AdoptionError, match="there is no library 'torch'"):
        make(read_source(CONFIGS / "gpt2.json"), registry, tmp_path, library="torch")


FAMILY = Family("mine", Facts(window=8), {"model_type": "m", "vocab_size": 64})


def test_what_is_written_is_read_again(tmp_path):
    path = write_family(FAMILY, tmp_path)
    read = load_family(path)
    assert (read.config, read.facts.window, read.module) == (FAMILY.config, 8, "mine")


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    (tmp_path / "mine.json").write_text("precious")
    with pytest.raises(AdoptionError, match=r"mine\.json: exists already"):
        workplace(tmp_path / "mine.json")
    assert (tmp_path / "mine.json").read_text() == "precious"


def test_all_files_move_or_none(tmp_path):
    target = tmp_path / "out" / "mine.json"
    target.parent.mkdir()
    folder = workplace(target)
    write_family(FAMILY, folder)
    (folder / "mine.report.md").write_text("report")
    with pytest.raises(AdoptionError, match="cannot write there"):
        publish(
            folder,
            target,
            {
                folder / "mine.report.md": target.with_name("mine.report.md"),
                folder / "absent.py": target.with_name("absent.py"),
            },
        )
    assert [path.name for path in target.parent.iterdir() if path != folder] == []
    (folder / "mine.report.md").write_text("report")
    publish(folder, target, {folder / "mine.report.md": target.with_name("mine.report.md")})
    assert target.is_file()
    assert target.with_name("mine.report.md").is_file()


def test_a_family_file_is_replaced_by_force_and_nothing_else(tmp_path):
    target = write_family(FAMILY, tmp_path)
    folder = workplace(target, force=True)
    assert folder.is_dir()
    (tmp_path / "config.json").write_text('{"model_type": "m"}')
    with pytest.raises(AdoptionError, match="is no family file, so --force does not replace it"):
        workplace(tmp_path / "config.json", force=True)


def test_where_a_replacement_fails_what_was_there_is_still_there(tmp_path):
    target = tmp_path / "mine.json"
    report = tmp_path / "mine.report.md"
    report.write_text("before")
    folder = workplace(target)
    (folder / report.name).write_text("after")
    with pytest.raises(AdoptionError, match="cannot write there"):
        publish(folder, target, {folder / report.name: report})
    assert report.read_text() == "before"
