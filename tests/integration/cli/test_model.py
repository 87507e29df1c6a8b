"""``--model``: real checkpoints, as the tests make and convert them, and damaged ones."""

import json
import shutil
import sys

import mlx.core as mx
import pytest
from checkpoint_folders import make_folder, quantized, sharded
from click.testing import CliRunner

from conformance.app.cli.main import group
from conformance.app.pytest_plugin.setup import make_setup
from conformance.app.run_settings import Settings
from conformance.core import guarded_call
from conformance.core.faults.declaration import Hits
from conformance.power.faults import with_faults
from conformance.tools.checkpoints import tokenizing
from conformance.tools.checkpoints.given import Given


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders by what is special about them, all of the same tiny llama."""
    root = tmp_path_factory.mktemp("checkpoints")
    plain = make_folder(root / "plain")
    return {
        "plain": plain,
        "eight": quantized(plain, root / "eight", 8),
        "four": quantized(plain, root / "four", 4),
        "sharded": sharded(plain, root / "sharded"),
        "tied": make_folder(root / "tied", tie_word_embeddings=True, dtype="bfloat16"),
    }


@pytest.fixture
def run(conformance, tmp_path):
    """``conformance run --model`` with the installed plugins, in one process."""

    def call(folder, *arguments):
        cache = ["--cache-dir", tmp_path / "cache"]
        options = [*cache, "--jobs", "1", "--json", "r.jsonl", *arguments]
        return conformance("run", "--model", folder, *options, PYTHONPATH="")

    return call


def opened(folder, tmp_path, *scenarios, no_expectations=True, **more):
    """The setup of a run on a checkpoint, in this process."""
    given = Given(folder, cache=tmp_path / "cache", **more)
    return make_setup(
        Settings(scenarios=scenarios, checkpoint=given, use_expectations=not no_expectations)
    )


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (("--scenario", "ragged", "--scenario", "window", "--scenario", "prefix_caching"), 3),
        pytest.param((), 26, marks=pytest.mark.nightly),
    ],
)
def test_the_ladder_is_climbed_on_four_bits(run, folders, options, count):
    done = run(folders["four"], *options)
    assert done.code == 0, done
    assert f"OK: {count} cases, all as expected" in done.out
    assert "four: float32, 0.000125 GB of weights and about" in done.err
    assert set(done.verdicts()) >= {"four/ragged", "four/window", "four/prefix_caching"}


@pytest.mark.parametrize(
    ("kind", "dtype"), [("eight", "float32"), ("sharded", "float32"), ("tied", "bfloat16")]
)
def test_padded_rows_and_late_joins_are_right(kind, dtype, folders, tmp_path):
    setup = opened(folders[kind], tmp_path, "repeat", "ragged", "staggered")
    results = [setup.session.run(case) for case in setup.cases]
    assert [result.case for result in results] == [
        f"mlx_lm/{kind}/{name}/{dtype}/0" for name in ("repeat", "ragged", "staggered")
    ]
    assert all(result.verdict.good for result in results), results


def test_prompts_dtype_and_the_kept_oracle_are_the_user_s(run, folders, tmp_path):
    (tmp_path / "p.txt").write_text("What is the tallest tree?\nCount to nine: one, two,\n")
    chosen = ["--prompts", "p.txt", "--dtype", "float16", "--no-expectations"]
    chosen += ["--scenario", "ragged", "--scenario", "invalid"]
    first = run(folders["plain"], *chosen)
    assert first.code == 1, first
    assert first.verdicts()["plain/ragged"] in ("exact", "tie")
    again = (
        f"conformance show --model {folders['plain']} --prompts {tmp_path / 'p.txt'} "
        f"--cache-dir {tmp_path / 'cache'} --no-expectations mlx_lm/plain/invalid/float16/0"
    )
    assert again in first.out
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npz")}
    assert len(kept) >= 5
    damaged = min(path for path in kept if path.parent.name == "streams")
    damaged.write_bytes(damaged.read_bytes()[:-9])
    second = run(folders["plain"], *chosen)
    assert f"{damaged}: the cached oracle is damaged" in second.err
    assert second.verdicts() == first.verdicts()
    now = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.npz")}
    assert now.keys() == kept.keys()
    assert [path for path in kept if now[path] != kept[path]] == [damaged]


def test_a_defect_shows_on_real_weights_too(folders, tmp_path):
    setup = opened(folders["eight"], tmp_path, "ragged")
    fault = with_faults(setup.registry).faults["mlx_lm/B6.mask-without-padding"]
    (case,) = setup.cases
    hits = Hits()
    assert not setup.session.run(case, around=lambda _: fault.inject(hits)).verdict.good
    assert hits.count
    assert setup.session.run(case).verdict.good


def held(folder, tmp_path, **more):
    """What became of the golden in the user's folder."""
    (found,) = opened(folder, tmp_path, golden=tmp_path / "golden", **more).hold_goldens()
    return found


def test_a_golden_is_written_once_and_then_held_against(folders, tmp_path):
    folder = shutil.copytree(folders["four"], tmp_path / "four")
    path = tmp_path / "golden" / "mlx_lm" / "four.json"
    first = held(folder, tmp_path)
    assert (first.good, first.messages) == (True, (f"{path}: written, as there was none",))
    written = path.read_bytes()
    again = held(folder, tmp_path)
    assert (again.good, again.messages) == (True, (f"{path}: the golden holds",))
    assert path.read_bytes() == written


def test_a_golden_of_other_weights_or_prompts_does_not_hold(folders, tmp_path):
    folder = shutil.copytree(folders["plain"], tmp_path / "one")
    held(folder, tmp_path)
    (tmp_path / "p.txt").write_text("Other texts than before, of which prompts are cut.\n")
    path = tmp_path / "golden" / "mlx_lm" / "one.json"
    written = path.read_bytes()
    weights = mx.load(str(folder / "model.safetensors"))
    weights["model.norm.weight"] = weights["model.norm.weight"] * 1.5
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    for more in ({}, {"prompts": tmp_path / "p.txt"}):
        found = held(folder, tmp_path, **more)
        assert not found.good
        assert (
            "stale: the family's config, weights recipe or prompts are not those"
            in found.messages[0]
        )
        assert found.messages[-1].endswith("remove it, and the next run writes a new one")
    assert path.read_bytes() == written


def test_a_vision_language_model_is_run_by_its_library(tmp_path):
    folder = make_folder(tmp_path / "sees", library="mlx_vlm", family="qwen2_vl")
    setup = opened(folder, tmp_path, "ragged", "invalid", no_expectations=False)
    results = {r.case: r for r in (setup.judge.compared(setup.session.run(c)) for c in setup.cases)}
    assert results["mlx_vlm/sees/ragged/float32/0"].verdict.good
    invalid = results["mlx_vlm/sees/invalid/float32/0"]
    assert invalid.expected, "what is known of the module's tiny family is known of it too"
    assert invalid.known


def cut(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def spoilt_tokenizer(folder):
    (folder / "tokenizer.json").write_text('{"model": ')


def without_field(folder):
    config = json.loads((folder / "config.json").read_text())
    del config["num_attention_heads"]
    (folder / "config.json").write_text(json.dumps(config))


def other_width(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 128}))


def unknown_type(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "novel"}))


def own_code(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "model.py").write_text("raise SystemExit('the code was run')")
    (folder / "config.json").write_text(json.dumps({**config, "model_file": "model.py"}))


def too_large(folder):
    """A file of 2 TB, of which the disk holds the header alone."""
    header = {"a.weight": {"dtype": "U8", "shape": [1 << 41], "data_offsets": [0, 1 << 41]}}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + (1 << 41))


BAD = {
    cut: "model.safetensors: was cut off: it has",
    spoilt_tokenizer: "its tokenizer can't be loaded",
    without_field: "config.json: lacks the field 'num_attention_heads', which mlx_lm needs",
    other_width: "model.safetensors: bad: loading failed: ValueError: Expected shape",
    unknown_type: "Model type novel not supported",
    own_code: "'model_file' asks for Python code of the folder to be run",
    too_large: "2.2e+03 GB of weights and about 0.00865 GB of caches are needed",
}


@pytest.mark.parametrize("damage", BAD, ids=lambda damage: damage.__name__)
def test_bad_input_is_one_sentence_and_nothing_is_written(damage, folders, tmp_path):
    folder = shutil.copytree(folders["plain"], tmp_path / "bad")
    damage(folder)
    here = sorted(tmp_path.rglob("*"))
    options = ["--cache-dir", str(tmp_path / "cache"), "--json", str(tmp_path / "r.jsonl")]
    done = CliRunner().invoke(group, ["run", "--model", str(folder), "--jobs", "1", *options])
    assert done.exit_code == 2, done.output
    assert BAD[damage] in done.stderr
    assert str(folder) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert sorted(tmp_path.rglob("*")) == here
    assert "the code was run" not in done.output
    assert "model" not in sys.modules


def test_a_weight_that_is_no_finite_number_is_refused(folders, tmp_path):
    folder, name = shutil.copytree(folders["plain"], tmp_path / "bad"), "model.norm.weight"
    file = str(folder / "model.safetensors")
    weights = mx.load(file)
    weights[name] = mx.concatenate([weights[name][:-1], mx.array([float("-inf")])])
    mx.eval(weights)
    mx.save_safetensors(file, weights, metadata={"format": "mlx"})
    options = ["--cache-dir", str(tmp_path / "cache"), "--jobs", "1"]
    done = CliRunner().invoke(group, ["run", "--model", str(folder), *options])
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.strip().splitlines()
    start = f"conformance: {file}: tensor {name!r} holds an infinity at ["
    assert line.startswith(start), line
    assert "(1 of its " in line


def test_infinities_that_no_model_reads_are_left_alone(folders, tmp_path):
    folder = shutil.copytree(folders["plain"], tmp_path / "masked")
    file = str(folder / "model.safetensors")
    weights = mx.load(file)
    mx.eval(weights)
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = mx.array([float("-inf")])
    mx.save_safetensors(file, weights, metadata={"format": "mlx"})
    setup = opened(folder, tmp_path, "repeat")
    assert setup.session.run(setup.cases[0]).verdict.good


def normalized_by(*parts):
    """``tokenizer.json`` with these normalizers, one after the other."""

    def damage(folder):
        path = folder / "tokenizer.json"
        chain = {"type": "Sequence", "normalizers": [dict(part) for part in parts]}
        path.write_text(json.dumps({**json.loads(path.read_text()), "normalizer": chain}))

    return damage


PREPEND = {"type": "Prepend", "prepend": "x" * 1000}
HARMFUL = {
    "panics": (
        normalized_by({"type": "Precompiled", "precompiled_charsmap": "AAAA/////w=="}),
        "ends in PanicException: Precompiled: Error(",
    ),
    # Each of its parts makes two letters of each that is no ASCII: no count of replacements. The
    # system may be first to end it, where little memory is left.
    "grows": (normalized_by(*[{"type": "ByteLevel"}] * 40), "takes more "),
    "never ends": (normalized_by(*[PREPEND] * 3000), "takes more than 3 seconds"),
}


@pytest.mark.parametrize(
    ("kind", "forks"),
    [(kind, True) for kind in HARMFUL]
    + [
        pytest.param(kind, False, marks=[pytest.mark.nightly] * (kind != "panics"))
        for kind in HARMFUL
    ],
)
def test_a_tokenizer_that_would_end_the_process_is_blamed(
    kind, forks, folders, tmp_path, monkeypatch
):
    monkeypatch.setattr(guarded_call, "FORKS", forks and guarded_call.FORKS)
    monkeypatch.setattr(tokenizing, "_SECONDS", 3 if kind == "never ends" else 100)
    monkeypatch.setattr(tokenizing, "_MOST_BYTES", 2 * 10**8 if kind == "grows" else 2**32)
    damage, message = HARMFUL[kind]
    folder = shutil.copytree(folders["plain"], tmp_path / "bad")
    damage(folder)
    done = CliRunner().invoke(group, ["run", "--model", str(folder), "--jobs", "1"])
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"conformance: {folder / 'tokenizer.json'}: can't be used: "), line
    assert message in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--prompts", "p.txt"],
            "--prompts, --cache-dir, --golden, --trust-remote-code and --forc",
        ),
        (["--model", "nowhere"], "nowhere: is not a folder; --model takes a checkpoint's folder"),
    ],
)
def test_options_that_do_not_fit_are_reported(options, message):
    done = CliRunner().invoke(group, ["run", *options])
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_family_beside_a_checkpoint_is_refused(folders):
    options = ["--model", str(folders["plain"]), "--family", "llama"]
    done = CliRunner().invoke(group, ["run", *options])
    assert done.exit_code == 2
    assert "--model is a family of its own: leave --family out" in done.stderr
