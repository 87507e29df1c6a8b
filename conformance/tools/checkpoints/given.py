"""What a user says of a checkpoint that is to be run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Given:
    """A checkpoint folder, and what a run is to do with it.

    Attributes:
        folder: holds config, safetensors and tokenizer.
        prompts: a file of texts, one a line; the built-in ones if ``None``.
        cache: where oracles are kept from run to run.
        trusted: Python files in the folder may be run.
        force: run it even where its memory does not suffice.
        golden: a folder of the user's own, where its golden lies or is to lie.
    """

    folder: Path
    prompts: Path | None = None
    cache: Path | None = None
    trusted: bool = False
    force: bool = False
    golden: Path | None = None

    @property
    def cache_folder(self) -> Path:
        """``cache``, or a folder of the user's own cache."""
        if self.cache is not None:
            return self.cache
        home = os.environ.get("XDG_CACHE_HOME")
        return (Path(home) if home else Path.home() / ".cache") / "mlx-conformance"

    @property
    def options(self) -> tuple[str, ...]:
        """The options of the command line that say the same."""
        given = {"--model": self.folder, "--prompts": self.prompts, "--cache-dir": self.cache}
        named = [text for name, path in given.items() if path for text in (name, str(path))]
        flags = {"--trust-remote-code": self.trusted, "--force": self.force}
        return (*named, *(name for name, on in flags.items() if on))
