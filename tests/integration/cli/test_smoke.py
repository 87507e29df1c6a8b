"""``conformance smoke``: one sentence for each engine, and an exit code."""

import pytest
from click.testing import CliRunner

from conformance.app.cli.main import group

ENGINE = """
from conformance.run.hookspecs import hookimpl
from conformance.plugins.mlx_lm.engine import MlxLmEngine

class Mine(MlxLmEngine):
    name = "mine"
    {body}

@hookimpl
def conformance_engines():
    return [Mine]
"""
STRANGE = """
    def _name(self, uid):
        return f"request {uid}"
"""
UNPADDED = """
    def _insert(self, submissions, start=None):
        uids = super()._insert(submissions, start)
        batch = self._generator
        batch._unprocessed_sequences = type(batch._unprocessed_sequences)(
            (entry[0], [[5] * len(piece) for piece in entry[1]], *entry[2:])
            for entry in batch._unprocessed_sequences
        )
        return uids
"""


def smoke(*arguments):
    return CliRunner().invoke(group, ["smoke", *arguments])


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Smoke an engine of one's own, in a module that is not installed."""
    monkeypatch.chdir(tmp_path)

    def call(name, body):
        (tmp_path / f"{name}.py").write_text(ENGINE.format(body=body.strip()))
        return smoke("--engine", "mine", "--family", "llama", "-p", name)

    return call


def test_installed_engines_are_fine():
    done = smoke("--engine", "mlx_lm*", "--engine", "mlx_vlm", "--family", "llama")
    assert done.exit_code == 0, done.output
    message = done.output.splitlines()
    assert (
        message[0]
        == "mlx_lm on llama: fine: 2 rows gave what each gives as a single stream (exact)"
    )
    assert [line.split(":")[1] for line in message] == [" fine"] * 3


def test_without_a_family_each_engine_gets_one():
    done = smoke("--engine", "reference_solo")
    assert done.exit_code == 0, done.output
    assert len(done.output.splitlines()) == 1


def test_an_engine_of_one_s_own_is_fine(mine):
    done = mine("mine_right", "pass")
    assert done.exit_code == 0, done.output


def test_a_broken_adapter_ends_with_3_and_the_command_to_run_it_again(mine):
    done = mine("mine_strange", STRANGE)
    assert done.exit_code == 3, done.output
    assert "mine on llama: adapter broken: step() " in done.output
    assert "which was not inserted" in done.output
    again = "again: conformance smoke --engine mine --family llama -p mine_strange"
    assert done.output.strip().endswith(again)


def test_a_wrong_engine_ends_with_1(mine):
    done = mine("mine_wrong", UNPADDED)
    assert done.exit_code == 1, done.output
    assert "mine on llama: engine wrong: d" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "nobody"], "no engine matches 'nobody'"),
        (["-p", "no_such_module"], "-p no_such_module: there is no module of that name"),
        (["--engine", "mlx_lm", "--family", "qwen2_5_vl*x"], "no family matches"),
    ],
)
def test_a_mistake_ends_with_2(arguments, message):
    done = smoke(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
