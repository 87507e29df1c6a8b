"""The options of a run on a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from conformance.core.user_cache import user_cache


@dataclass(frozen=True)
class Given:
    """A checkpoint folder, and the options of a run on it.

    Attributes:
        folder: holds config, safetensors and tokenizer.
        prompts: a file of texts, one per line; the built-in ones if ``None``.
        cache: the folder that keeps oracles between runs.
        trusted: Python files in the folder may be run.
        force: run even if memory does not suffice.
        golden: a folder of the user for the checkpoint's golden.
    """

    folder: Path
    prompts: Path | None = None
    cache: Path | None = None
    trusted: bool = False
    force: bool = False
    golden: Path | None = None

    @property
    def cache_folder(self) -> Path:
        """``cache``, or a folder in the user's cache directory."""
        return self.cache or user_cache()

    @property
    def options(self) -> tuple[str, ...]:
        """The same options for the command line."""
        given = {"--model": self.folder, "--prompts": self.prompts, "--cache-dir": self.cache}
        named = [text for name, path in given.items() if path for text in (name, str(path))]
        flags = {"--trust-remote-code": self.trusted, "--force": self.force}
        return (*named, *(name for name, on in flags.items() if on))
