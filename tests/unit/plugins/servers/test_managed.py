"""How the libraries' servers are started, asked and read; no server runs."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from conformance.core.engine_options import EngineOptions, KvQuant, PrefixCaching
from conformance.core.errors import Unsupported
from conformance.core.family import Checkpoint, Facts, Family
from conformance.core.faults import Hits
from conformance.core.origin import Origin
from conformance.core.schedule import Asked, Media, Request
from conformance.core.token_choice import Sampler
from conformance.plugins.servers.answers import Answer
from conformance.plugins.servers.managed import ManagedEngine
from conformance.plugins.servers.mlx_lm_server import MlxLmServer
from conformance.plugins.servers.mlx_vlm_server import MlxVlmServer

# Of a package Python runs another module, which nobody has imported.
PACKAGES = {"mlx_vlm.server"}
FAMILY = Family("small", Facts(), {"vocab_size": 32})


def engine(kind, options=None, family=FAMILY):
    """An engine without its server."""
    made = kind.__new__(kind)
    made._options = options or EngineOptions()
    made._given = Origin(None, family, "float32", 0, lambda folder: None)
    made._server = SimpleNamespace(folder=Path("/served"), log=lambda: "", code=None)
    made._log_at, made._planted = 0, ()
    return made


def test_a_server_with_a_fault_in_it_is_another_one():
    right, wrong = engine(MlxLmServer), engine(MlxLmServer)
    wrong._planted = (("module:fault", Hits()),)
    assert right._key != wrong._key


def test_an_exception_of_a_right_request_is_a_complaint():
    made = engine(MlxLmServer)
    trace = 'Traceback (most recent call last):\n  File "/a/server.py", line 3, in f\n{}\n'
    for error, found in (("KeyError: 'x'", True), ("BrokenPipeError: [Errno 32]", False)):
        text = trace.format(error)
        made._server = SimpleNamespace(log=lambda text=text: text, code=None)
        assert bool(made.complaint()) is found


def test_fields_that_few_clients_send_are_sent_as_they_are():
    request = Request("a", (5,), 3, asked=Asked(fields={"stream_options": {}, "top_logprobs": 2}))
    body = engine(MlxLmServer).question(request, streamed=True).body
    assert (body["stream_options"], body["top_logprobs"]) == ({}, 2)


def test_the_logprobs_of_a_text_are_a_number_where_the_server_takes_one():
    text, chat = (Request("a", (5,), 3, asked=Asked(chat=chat)) for chat in (False, True))
    assert engine(MlxLmServer).question(text, streamed=False).body["logprobs"] is True
    assert ManagedEngine.completion_logprobs == 1
    assert ManagedEngine.completion_logprobs is not True
    assert engine(MlxVlmServer).question(text, streamed=False).body["logprobs"] == 1
    assert engine(MlxVlmServer).question(chat, streamed=False).body["logprobs"] is True


def test_the_options_are_the_servers_own():
    options = EngineOptions(prefill_step_size=4, prefill_batch_size=2, completion_batch_size=3)
    assert list(engine(MlxLmServer, options).flags()) == [
        *("--chat-template-args", '{"writes_ending": true}'),
        *("--prefill-step-size", "4", "--prompt-concurrency", "2"),
        *("--decode-concurrency", "3", "--prompt-cache-size", "0"),
    ]
    own = replace(FAMILY.facts, model_file="novel.py")
    trusting = engine(MlxLmServer, options, replace(FAMILY, facts=own))
    assert "--trust-remote-code" in trusting.flags()
    quantized = engine(MlxVlmServer, EngineOptions(kv=KvQuant(8, 32)))
    assert list(quantized.flags())[-6:] == [
        *("--kv-bits", "8", "--kv-group-size", "32", "--kv-quant-scheme", "uniform"),
    ]


def test_prefixes_are_kept_only_where_the_options_say_so():
    on, off = EngineOptions(prefix_caching=PrefixCaching()), EngineOptions()
    assert engine(MlxLmServer, on).flags()[-1] == str(PrefixCaching().snapshots)
    kept = engine(MlxVlmServer, on).environment()
    # How much memory other programs have must not decide it.
    assert (kept["APC_ENABLED"], kept["APC_MEMORY_RESERVE_GB"]) == ("1", "0")
    assert engine(MlxVlmServer, off).environment() == {"APC_ENABLED": "0"}


@pytest.mark.parametrize("kind", [MlxLmServer, MlxVlmServer])
def test_what_is_imported_ahead_is_not_the_module_that_is_run(kind):
    assert kind.imported
    assert not {kind.module(), f"{kind.module()}.__main__"} & set(kind.imported) - PACKAGES


def test_a_request_is_its_words():
    request = Request("a", (5, 6), 3, stop=((7, 8),), asked=Asked(chat=False))
    asked = engine(MlxLmServer).question(request, streamed=True)
    assert not asked.chat
    assert asked.body["input"] == "t5 t6"
    assert asked.body["stop"] == ["t7 t8"]
    assert asked.body["stream_options"] == {"include_usage": True}
    sampler = Sampler("server", {"temperature": 0.5, "seed": 1})
    seeded = engine(MlxLmServer).question(Request("a", (5,), 3, sampler), streamed=False)
    assert (seeded.body["temperature"], seeded.body["seed"]) == (0.5, 1)


def test_images_keep_their_places_in_the_message():
    request = Request("a", (5, 30, 30, 6), 3, media=(Media("image", (4, 4), span=(1, 3)),))
    (message,) = engine(MlxVlmServer).question(request, streamed=False).body["input"]
    before, image, after = message["content"]
    assert (before["text"], after["text"]) == ("t5", "t6")
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    sound = Request("a", (5,), 3, media=(Media("audio", (9,), span=(0, 1)),))
    with pytest.raises(Unsupported, match="no audio"):
        engine(MlxVlmServer).question(sound, streamed=False)


def test_tokens_are_the_words_of_an_answer_or_those_of_its_logprobs():
    answer = Answer("t5 t6", entries=[{"token": " t5", "logprob": -1.0}])
    assert engine(MlxLmServer).tokens(answer) == [(5, None), (6, None)]
    assert engine(MlxVlmServer).tokens(answer) == [(5, -1.0)]
    line = Answer(entries=[{"token": "<7..>\n", "logprob": -1.0}])
    words = EngineOptions(words=(("<7..>\n", 7),))
    assert engine(MlxVlmServer, words).tokens(line) == [(7, -1.0)]


def test_words_without_blanks_between_them_are_several_tokens():
    words = EngineOptions(words=(("<7..>", 7),))
    joined, request = Answer("t5t16<7..>t2 t4", bare=True), Request("a", (5,), 5)
    made = engine(MlxVlmServer, words)
    assert [token for token, _ in made.tokens(joined)] == [5, 16, 7, 2, 4]
    assert made.words(request, joined) == ["t5", "t16", "<7..>", "t2", "t4"]
    assert made.words(request, Answer("t5x t6")) == ["t5", "x", "t6"]
    lm = engine(MlxLmServer)
    assert lm.words(request, Answer("t5t16 t2")) == ["t5", "t16", "t2"]


def test_a_real_checkpoint_is_not_served_here():
    real = Family("real", Facts(), {"vocab_size": 32}, checkpoint=Checkpoint("/real"))
    with pytest.raises(Unsupported, match="--engine http --url"):
        engine(MlxLmServer, family=real).connect()


def test_the_state_of_a_server_that_ended_is_its_last_line():
    made = engine(MlxLmServer)
    made._server = SimpleNamespace(
        log=lambda: "loading\nkilled\n", code=137, code_within=lambda _: 137
    )
    assert made.ended()
    assert made.state() == "the server ended with exit code 137: killed"


def test_a_thread_that_ended_is_named_by_its_own_exception():
    made = engine(MlxLmServer)
    trace = 'Traceback (most recent call last):\n  File "/a/server.py", line 3, in f\n{}\n'
    later = ("RuntimeError: generation thread ended", "BrokenPipeError: [Errno 32]")
    text = "".join(trace.format(error) for error in ("KeyError: 7", *later))
    made._server = SimpleNamespace(log=lambda: text, code=None, code_within=lambda _: None)
    assert made.state().startswith("KeyError: 7")
    text = trace.format(later[0])
    assert made.state().startswith(later[0])


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (MlxLmServer, "INFO - Prompt processing progress: {}/{}\n"),
        (MlxVlmServer, "INFO - Prefill progress: request=7f tokens={}/{} (1.0%)\n"),
    ],
)
def test_how_far_a_prompt_is_comes_from_the_log(kind, line):
    made = engine(kind, EngineOptions(prefill_step_size=2))
    made._requests = {n: Request(n, (1,) * len(n), 3) for n in ("a", "bbbbb", "cccccc", "dddddd")}
    made._server = SimpleNamespace(log=lambda: line.format(2, 5) + line.format(4, 5))
    assert made.prefilled(["a"]) is None
    assert made.prefilled(["a", "bbbbb"]) == {"bbbbb": 4}
    assert made.prefilled(["cccccc", "dddddd"]) is None  # of equal length
    made._server = SimpleNamespace(log=lambda: line.format(5, 5))
    assert made.prefilled(["bbbbb"]) == {}


def test_a_server_that_keeps_a_clients_adapter_is_not_used_again(tmp_path):
    made = engine(MlxVlmServer)
    made._server, made._changed = SimpleNamespace(folder=tmp_path), False
    (tmp_path / "adapter1").mkdir()
    made.question(Request("plain", (5,), 3), streamed=True)
    assert not made._changed
    asked = made.question(Request("a", (5,), 3, asked=Asked(adapter=1)), streamed=True)
    assert asked.body["adapter_path"] == str(tmp_path / "adapter1")
    assert made._changed
