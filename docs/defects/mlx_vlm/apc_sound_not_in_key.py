"""Prefix caching: the key of a prompt leaves out the sound of some models.

The server's key of a request counts ``input_features`` as its sound and no other name
(mlx_vlm/server/generation.py:1235). The processors of inkling, muse_spark,
nemotron_h_nano_omni and minicpmo give theirs as ``audio_input_ids``, ``input_values``,
``sound_clips`` and ``audio_features``: two recordings of equal
length with the same text are one prompt, and the second is answered with the keys and values of
the first, also another user's. Fixed by a key of all that the processor gives.
"""

import sys
from importlib.metadata import version
from threading import Event
from types import SimpleNamespace

import mlx.core as mx
from mlx_vlm.server.generation import GenerationArguments, ResponseGenerator

NAMES = ("audio_input_ids", "input_values", "sound_clips", "audio_features")
IDS = mx.array([[1, 2, 3]])


class TakenError(Exception):
    """Carries the request that the server would have queued."""


class Requests:
    def put(self, request: object) -> None:
        raise TakenError(request)


def key(name: str, sound: mx.array) -> int:
    """The key that the server makes of a prompt with that sound."""
    server = SimpleNamespace(
        **{"apc_mode": "block", "model": SimpleNamespace(config=None), "processor": None},
        **{"wait_until_ready": lambda: None, "draft_model": None, "requests": Requests()},
        _preprocess_request=lambda *_, **__: {"input_ids": IDS, name: sound},
        _make_thinking_budget_criteria=lambda *_: None,
        _cancelled=set(),
        _stop_event=Event(),
    )
    try:
        ResponseGenerator.generate(server, "a prompt", args=GenerationArguments(max_tokens=1))
    except TakenError as taken:
        return taken.args[0].apc_semantic_hash
    raise RuntimeError("the server queued nothing")


def main() -> int:
    one, other = mx.zeros((1, 8)), mx.ones((1, 8))
    print(f"mlx-vlm {version('mlx-vlm')}: the server's keys of two sounds with the same text")
    same = []
    for name in ("input_features", *NAMES):
        equal = key(name, one) == key(name, other)
        same += [name] * equal
        print(f"{name}: {'the same' if equal else 'not the same'}")
    print("expected: not the same")
    return 1 if same else 0


if __name__ == "__main__":
    sys.exit(main())
