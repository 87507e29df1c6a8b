"""Every reader of a user's file, and files that are nearly right, to fuzz them with.

``FUZZED`` names each reader; ``python ci/fuzz.py`` tries each with many more examples.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import fuzzed_vectors
import msgspec
from hypothesis import strategies as st
from results_by_hand import make_result

from conformance.checks.expectations import load_expectations
from conformance.core.errors import ConformanceError
from conformance.core.family import load_family
from conformance.core.run_header import RunHeader
from conformance.core.verdict import Verdict, encode
from conformance.power.transformers_check.known_differences import load_known
from conformance.report.jsonl import read_run
from conformance.report.pages.material import read_explanations
from conformance.report.trials import Kill, Outcome, Trial, read_trials
from conformance.tools.checkpoints.folder import INDEX, look, read_config, read_header
from conformance.tools.checkpoints.tokenizing import check_tokenizer
from conformance.tools.explore.corpus import OWN as CORPUS
from conformance.tools.explore.corpus import read_corpus
from conformance.tools.golden.format import load_golden, load_without
from conformance.tools.new_family.source import read_source
from conformance.tools.vectors.parsing import read_trace
from conformance.tools.vectors.reading import MANIFEST

ROOT = Path(__file__).parents[1]
LLAMA = ROOT / "conformance" / "plugins" / "mlx_lm" / "families" / "llama.json"
GOLDEN = ROOT / "golden" / "mlx_lm" / "llama.json"
CORPUS_ENTRY = min(CORPUS.glob("*.json"))

_DIGITS, _DEEP = "@@DIGITS@@", "@@DEEP@@"  # what a writer of JSON can't write
_KEYS = ("", "a", "id", "\x1b", "x" * 500, "../../x", "/etc/passwd", "/dev/zero", "\x00")
_LONGEST = 4_100  # characters of a message

ODD: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 7, 70_000, 1_000_000, 2**63, -(2**70), 10**300),
    *(1e308, float("inf"), float("nan"), -0.5),
    *("", "x" * 3000, "../../x", "/etc/passwd", "\x1b[2J", "a\nb\n::error::c", "\ud800", "\x00"),
    *("[/red]", "1", "null", "@", "\u202e", _DIGITS, _DEEP),
    *([], {}, [[]], [1] * 300, {"": {}}, {"a": [None]}, [{"a": 1}], [["a"]] * 3),
)


@dataclass(frozen=True)
class Fuzzed:
    """One reader: reads the file of this name in a folder, which may hold others.

    Attributes:
        documents: what its file holds, before it is changed; one JSON value for each line.
        frame: makes the file of the changed JSON.
        beside: puts other files into the folder.
    """

    name: str
    file: str
    documents: Callable[[], list[Any]]
    read: Callable[[Path], object]
    frame: Callable[[list[Any]], bytes] = field(default_factory=lambda: _lines)
    beside: Callable[[Path], object] = lambda folder: None

    def right(self) -> bytes:
        """A file that it reads."""
        return self.frame(self.documents())

    def with_reader(self, read: Callable[[Path], object]) -> Fuzzed:
        """The same with another reader."""
        return dataclasses.replace(self, read=read)

    def problem(self, folder: Path, data: bytes) -> str:
        """What is wrong with how the reader takes the data; empty if nothing is."""
        path = folder / self.file
        path.write_bytes(data)
        try:
            self.read(path)
        except ConformanceError as error:
            text = str(error)
            known = str(folder) in text and len(text) < _LONGEST + len(str(folder))
            return "" if known else f"a sentence that does not name the file, or a long one: {text}"
        except Exception as error:  # noqa: BLE001 - this is what must not be
            return f"{type(error).__name__}: {error}"
        return ""


def files(fuzzed: Fuzzed) -> st.SearchStrategy[bytes]:
    """Files that are nearly right; from a number each, as thousands are wanted."""
    return st.integers(0, 2**64 - 1).map(lambda number: nearly_right(fuzzed, Random(number)))


def nearly_right(fuzzed: Fuzzed, rng: Random) -> bytes:
    """A file with values changed, bytes changed, both, or neither."""
    documents = copy.deepcopy(fuzzed.documents())
    for _ in range(rng.randint(0, 3)):
        index = rng.randrange(len(documents))
        documents[index] = _changed(rng, documents[index])
    data = fuzzed.frame(documents)
    for _ in range(rng.choice((0, 0, 1, 2))):
        data = _spoilt(rng, data)
    return data


def _odd(rng: Random) -> Any:
    odd = copy.deepcopy(rng.choice(ODD))
    return rng.randbytes(6).decode("latin-1") if odd == "@" else odd


def _changed(rng: Random, document: Any) -> Any:
    places = list(_places(document))
    if not places or rng.random() < 0.05:
        return _odd(rng)
    inside, key = rng.choice(places)
    how = rng.choice(("put", "put", "put", "take", "add", "rename"))
    if how == "take":
        del inside[key]
    elif how == "add" and isinstance(inside, dict):
        inside[rng.choice(_KEYS)] = _odd(rng)
    elif how == "rename" and isinstance(inside, dict):
        inside[rng.choice(_KEYS)] = inside.pop(key)
    else:
        inside[key] = _odd(rng)
    return document


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(node, dict | list):
        return
    for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
        yield node, key
        yield from _places(value)


def _json(document: Any) -> str:
    text = json.dumps(document)
    text = text.replace(f'"{_DIGITS}"', "9" * 5000)
    return text.replace(f'"{_DEEP}"', "[" * 20_000 + "]" * 20_000)


def _spoilt(rng: Random, data: bytes) -> bytes:
    at = rng.randint(0, len(data))
    how = rng.choice(("cut", "insert", "insert", "mark", "other"))
    if how == "cut":
        return data[:at] + data[at + rng.randint(1, 9) :]
    if how == "mark":
        return b"\xef\xbb\xbf" + data
    if how == "other":
        return rng.randbytes(rng.randint(0, 30))
    bits = (rng.randbytes(4), b"{", b"]", b'"', b"\n", b"9" * 30, b"\\ud800", b"[" * 3000)
    return data[:at] + rng.choice(bits) + data[at:]


# Right files -------------------------------------------------------------------------------------


def _loaded(path: Path) -> list[Any]:
    return [json.loads(path.read_text())]


def _config() -> list[Any]:
    config = json.loads(LLAMA.read_text())
    config.pop("conformance")
    return [{**config, "text_config": {"vocab_size": 9, "sliding_window": 4}}]


def _tensors() -> list[Any]:
    return [
        {
            "__metadata__": {"format": "pt"},
            "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
            "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]},
        }
    ]


def _lines(documents: list[Any]) -> bytes:
    return "".join(f"{_json(document)}\n" for document in documents).encode()


def _safetensors(documents: list[Any]) -> bytes:
    header = _lines(documents)
    return len(header).to_bytes(8, "little") + header + bytes(22)


def _checkpoint(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(_config()[0]))
    (folder / "model.safetensors").write_bytes(_safetensors(_tensors()))


def _results() -> list[Any]:
    ids = ("mlx_lm/llama/ragged/float32/0", "mlx_lm/llama/repeat/float32/0")
    lines = [encode(RunHeader(2)), *(encode(make_result(i, Verdict.NAN)) for i in ids)]
    return [json.loads(line) for line in lines]


def _trials() -> list[Any]:
    kill = Kill("ragged", "drift", ("forced",), 3.0)
    found = Trial("B1.mask", "B1", "e", "f", "float32", 0, Outcome.KILLED, kills=(kill,))
    return [msgspec.to_builtins(found)]


def _trace() -> list[Any]:
    return [
        {"record": "header", "format": 1, "engine": "e", "device": "cpu", "dtype": "float32"}
        | {"family": "toy", "scenario": "s", "schedule": "plain", "versions": {"v": "1"}},
        {"record": "arrived", "request_ids": ["a"]},
        {"record": "token", "request_id": "a", "step": 0, "token": 5, "top": [[5, -0.5]]},
        {"record": "finish", "request_id": "a", "reason": "length"},
        {"record": "end", "cache_bytes": 0},
    ]


def _explanation() -> list[Any]:
    case = {"case": "mlx_lm/llama/ragged/float32/0", "schedule": "s", "verdict": "nan", "what": "w"}
    case |= {"where": {"site": "module:a:B"}, "entry": None, "ingredients": [], "suffices": None}
    case |= {"layers": [], "steps": [], "opinion": "", "relatives": [], "seconds": 0.0}
    return [case]


def _tokenizer() -> list[Any]:
    one = {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}
    return [{"normalizer": {"type": "Sequence", "normalizers": [one]}, "pre_tokenizer": None}]


def _toml(documents: list[Any]) -> bytes:
    """Tables of TOML of a JSON object; what TOML has not is left as it is in JSON."""
    found = documents[0]
    if not isinstance(found, dict):
        return _lines(documents)
    text = []
    for name, value in found.items():
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            for table in value:
                text += [f"[[{_key(name)}]]", *_pairs(table)]
        elif isinstance(value, dict):
            text += [f"[{_key(name)}]", *_pairs(value)]
        else:
            text.insert(0, f"{_key(name)} = {_inline(value)}")
    return "".join(f"{line}\n" for line in text).encode()


def _pairs(table: dict[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_inline(value)}" for name, value in table.items()]


def _key(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else json.dumps(name)


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return "nan" if value != value else "inf"
    return "nan" if value is None else _json(value)


def _expectations() -> list[Any]:
    defect = {
        "id": "d",
        "families": ["llama"],
        "versions": "<=1",
        "where": "x.py:1",
    }
    defect |= {
        "why": "w",
        "script": "d.py",
        "verdicts": {"ragged": "diverged"},
        "dtypes": ["float32"],
    }
    return [{"package": "mlx-lm", "defect": [defect], "unsupported": []}]


FUZZED = (
    Fuzzed("family file", "f.json", lambda: _loaded(LLAMA), load_family),
    Fuzzed("checkpoint config", "config.json", _config, read_config),
    Fuzzed("new family's config", "config.json", _config, lambda p: read_source(p, trusted=False)),
    Fuzzed("safetensors header", "m.safetensors", _tensors, read_header, _safetensors),
    Fuzzed(
        "weight index",
        INDEX,
        lambda: [{"weight_map": {"a": "model.safetensors", "b": "model.safetensors"}}],
        lambda path: look(path.parent),
        beside=_checkpoint,
    ),
    Fuzzed("tokenizer", "tokenizer.json", _tokenizer, lambda path: check_tokenizer(path.parent)),
    Fuzzed("results", "r.jsonl", _results, read_run),
    Fuzzed(
        "power results",
        "p.jsonl",
        _trials,
        lambda path: read_trials([path]),
    ),
    Fuzzed("explanations", "e.json", _explanation, lambda path: read_explanations(path.parent)),
    Fuzzed("trace", "t.jsonl", _trace, read_trace),
    Fuzzed(
        "manifest",
        MANIFEST,
        fuzzed_vectors.manifest,
        fuzzed_vectors.read,
        lambda documents: _lines(fuzzed_vectors.with_digest(documents)),
        beside=fuzzed_vectors.beside,
    ),
    Fuzzed(
        "schedules of vectors",
        fuzzed_vectors.SCHEDULES_FILE,
        fuzzed_vectors.schedules,
        fuzzed_vectors.read_sealed,
        beside=fuzzed_vectors.beside,
    ),
    Fuzzed(
        "golden of vectors",
        fuzzed_vectors.GOLDEN_FILE,
        fuzzed_vectors.golden,
        fuzzed_vectors.read_sealed,
        beside=fuzzed_vectors.beside,
    ),
    Fuzzed("golden", "g.json", lambda: _loaded(GOLDEN), load_golden),
    Fuzzed(
        "corpus",
        CORPUS_ENTRY.name,
        lambda: _loaded(CORPUS_ENTRY),
        lambda path: read_corpus(path.parent),
    ),
    Fuzzed(
        "expectations", "mlx_lm.toml", _expectations, lambda p: load_expectations(p.parent), _toml
    ),
    Fuzzed(
        "families without golden",
        "without.toml",
        lambda: [{"mlx_lm": {"a": "why"}}],
        lambda p: load_without(p.parent),
        _toml,
    ),
    Fuzzed("known differences", "k.toml", lambda: [{"llama": {"absent": "w"}}], load_known, _toml),
)
