"""Reads the description of a new model: a config, a folder with one, or a Python module."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.core.config_fields import check_config
from conformance.core.errors import AdoptionError
from conformance.core.family import SECTION
from conformance.core.unavailable import error_text
from conformance.core.user_files import read_object
from conformance.tools.new_family.draft import Fields

_CLASSES = {"Model", "ModelArgs"}

WHAT_TO_GIVE = (
    "give its Python file, with Model and ModelArgs as mlx-lm has them, as PATH, or name it in the "
    "config as 'model_file'"
)


def model_beside(path: Path, config: dict[str, Any]) -> Path | None:
    """The file next to the config that has the model's classes; ``None`` if there is none.

    The file is named after the model's type or the config, or is ``model.py``; next to a
    ``config.json`` any name is accepted.

    Raises:
        AdoptionError: there are several, and none is named after the model.
    """
    kind = str(config.get("model_type", ""))
    named = (f"{kind}.py", f"modeling_{kind}.py", f"{path.stem}.py", "model.py")
    for name in named:
        if _has_model(path.with_name(name)):
            return path.with_name(name)
    if path.name != "config.json":
        return None
    found = [file for file in sorted(path.parent.glob("*.py")) if _has_model(file)]
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise AdoptionError(
            f"{path}: several files beside it have a Model ({names}); name one in the config as "
            "'model_file'"
        )
    return found[0] if found else None


def _has_model(file: Path) -> bool:
    """Whether a module's text defines or imports both classes."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    return set(_names(tree)) >= _CLASSES


def _names(tree: ast.Module) -> Iterator[str]:
    """The names defined at the top level of the module's text."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


PROCESSOR_FILES = (
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
)
# Assumed for required fields of ModelArgs: the sizes of a model with one billion parameters.
TYPICAL: dict[str, Any] = {
    "model_type": "",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 32000,
    "rms_norm_eps": 1e-5,
    "layer_norm_eps": 1e-5,
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 1024,
    "sliding_window": 4096,
    "attention_bias": False,
    "mlp_bias": False,
}
_TOKEN = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Source:
    """A new model at full size.

    Attributes:
        name: a possible name for its family.
        path: of the config or the module.
        files: the JSON files of its processor, by name.
        texts: the special tokens of its tokenizer, by id.
        roles: of special tokens (``eos_token``), by the tokenizer's own names.
        model_file: a Python file with ``Model`` and ``ModelArgs``.
        beside: such a file that was found but must not be run.
        assumed: fields without any value, and the values assumed for them.
    """

    name: str
    path: Path
    config: Fields
    files: dict[str, Fields] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    model_file: Path | None = None
    beside: Path | None = None
    assumed: dict[str, Any] = field(default_factory=dict)


def read_source(path: Path, *, trusted: bool = False) -> Source:
    """The model that ``path`` describes.

    Args:
        trusted: a Python file that the config names may be run. A module given as ``path`` is
            always imported: the user named it.

    Raises:
        AdoptionError: the file is missing or can't be read, or the config asks for code to be run
            and is not trusted; names the file.
    """
    if path.is_dir():
        found = path / "config.json"
        if not found.is_file():
            raise AdoptionError(f"{path}: there is no config.json in this folder")
        return _from_config(found, folder=path, trusted=trusted)
    if not path.is_file():
        raise AdoptionError(f"{path}: there is no such file or folder")
    if path.suffix == ".py":
        return _from_module(path)
    folder = path.parent if path.name == "config.json" else None
    return _from_config(path, folder=folder, trusted=trusted)


def _from_config(path: Path, *, folder: Path | None, trusted: bool) -> Source:
    config = read_object(path, AdoptionError)
    check_config(config, str(path), AdoptionError)
    if SECTION in config:
        raise AdoptionError(
            f"{path}: has a {SECTION!r} section, so it is a family file already; "
            "give the full-size config"
        )
    model_file = None
    if named := config.pop("model_file", None):
        model_file = path.parent / str(named)
        if Path(str(named)).name != named or not model_file.is_file():
            raise AdoptionError(
                f"{path}: model_file names {named}, which is not beside it; put it there"
            )
        if not trusted:
            raise AdoptionError(
                f"{path}: the field 'model_file' asks for Python code to be run ({named}); "
                "--trust-remote-code allows it"
            )
    elif not isinstance(config.get("model_type"), str):
        raise AdoptionError(f"{path}: the config has no 'model_type'")
    beside = model_beside(path, config) if model_file is None else None
    if trusted and beside is not None:
        model_file, beside = beside, None
    name = path.stem if folder is None else path.absolute().parent.name
    if folder is None:
        return Source(_name(name), path, config, model_file=model_file, beside=beside)
    files = {
        n: read_object(folder / n, AdoptionError) for n in PROCESSOR_FILES if (folder / n).is_file()
    }
    texts, roles = _tokenizer(folder / "tokenizer_config.json")
    return Source(_name(name), path, config, files, texts, roles, model_file, beside)


def _tokenizer(path: Path) -> tuple[dict[int, str], dict[str, str]]:
    """Special tokens by id, and those with a role, as in ``tokenizer_config.json``."""
    if not path.is_file():
        return {}, {}
    config = read_object(path, AdoptionError)
    texts = {}
    added = config.get("added_tokens_decoder", {})
    if not isinstance(added, dict):
        raise AdoptionError(f"{path}: the field 'added_tokens_decoder' is no object")
    for token, entry in added.items():
        if not _TOKEN.fullmatch(token) or not isinstance(entry, dict) or "content" not in entry:
            raise AdoptionError(
                f"{path}: added_tokens_decoder: {token!r} is not a token with content"
            )
        texts[int(token)] = str(entry["content"])
    roles = {}
    for key, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if key.endswith("_token") and isinstance(text, str):
            roles[key] = text
    return texts, roles


def _from_module(path: Path) -> Source:
    """A module in mlx-lm's style; its sizes come from a config next to it or from its defaults."""
    module = _imported(path)
    for name in ("Model", "ModelArgs"):
        if not inspect.isclass(getattr(module, name, None)):
            raise AdoptionError(f"{path}: has no class {name!r}, as a model of mlx-lm has")
    beside = path.parent / "config.json"
    if beside.is_file():
        source = _from_config(beside, folder=None, trusted=True)
        return dataclasses.replace(source, name=_name(path.stem), model_file=path, beside=None)
    if not dataclasses.is_dataclass(module.ModelArgs):
        raise AdoptionError(
            f"{path}: ModelArgs is not a dataclass, so its fields are not known; "
            "put a config.json beside it"
        )
    config, assumed = _defaults(path, module.ModelArgs)
    return Source(_name(path.stem), path, config, model_file=path, assumed=assumed)


def _imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"new_family_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise AdoptionError(f"{path}: is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look up their module by name
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # not into a user's folder
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise AdoptionError(f"{path}: cannot be imported: {error_text(error)}") from error
    finally:
        sys.dont_write_bytecode = written
        sys.modules.pop(module.__name__, None)
    return module


def _defaults(path: Path, args: Any) -> tuple[Fields, dict[str, Any]]:
    """The defaults of ``ModelArgs``, and the values assumed for its required fields."""
    config: Fields = {}
    assumed: dict[str, Any] = {}
    for one in dataclasses.fields(args):
        if one.default is not dataclasses.MISSING:
            config[one.name] = one.default
        elif one.default_factory is not dataclasses.MISSING:
            config[one.name] = one.default_factory()
        elif one.name in TYPICAL:
            config[one.name] = assumed[one.name] = TYPICAL[one.name] or path.stem
        else:
            raise AdoptionError(
                f"{path}: ModelArgs.{one.name} has no default; put a config.json beside the module"
            )
    config["model_type"] = config.get("model_type") or path.stem
    try:
        plain: Fields = json.loads(json.dumps(config))
    except (TypeError, ValueError) as error:
        raise AdoptionError(f"{path}: a default of ModelArgs is not JSON: {error}") from error
    return plain, assumed


def _name(text: str) -> str:
    """A name that is valid in case ids."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-") or "new-family"
