"""What mlx-lm and mlx-vlm do alike as libraries: their modules, and folders of checkpoints.

No single stream of a tiny family runs any of this: the keys of stored ones count the folder of the
library's own plugin, and this module is outside of it.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance.backend.calibration import improve
from conformance.backend.checkpoint import first_not_finite, library_errors, parameters
from conformance.backend.code_traits import load_exclusions, modules_of
from conformance.backend.device import device_name, package_versions
from conformance.backend.memory import churn
from conformance.core.family import Facts, Family
from conformance.core.library import Coverage, Library


class InstalledLibrary(Library):
    """An installed package whose families are in its plugin's folder."""

    @staticmethod
    @abstractmethod
    def lazy(folder: Path, *, trusted: bool) -> Any:
        """The model of a checkpoint's folder, whose weights are mapped but not read."""

    @staticmethod
    @abstractmethod
    def tokenizer(folder: Path, *, trusted: bool) -> Any:
        """The tokenizer of a checkpoint's folder."""

    def coverage(self) -> Coverage:
        """See ``Library.coverage``: the reasons are in ``families/_excluded.toml``."""
        reasons = Path(__file__).parent / self.name / "families" / "_excluded.toml"
        package = importlib.import_module(f"{self.package}.models")
        return Coverage(modules_of(package), load_exclusions(reasons))

    def check(self, folder: Path, *, trusted: bool = False) -> None:
        """See ``Library.check``: the weights are mapped, but not read."""
        with library_errors(_named(folder), "loading"):
            self.lazy(folder, trusted=trusted)

    def not_finite(self, folder: Path, *, trusted: bool = False) -> str | None:
        """See ``Library.not_finite``: each parameter is read, then released."""
        with library_errors(_named(folder), "loading"):
            return first_not_finite(parameters(self.lazy(folder, trusted=trusted)))

    def tokenize(
        self, folder: Path, texts: Sequence[str], *, trusted: bool = False
    ) -> tuple[tuple[int, ...], ...]:
        """See ``Library.tokenize``."""
        with library_errors(_named(folder), "loading the tokenizer"):
            tokenizer = self.tokenizer(folder, trusted=trusted)
            return tuple(tuple(tokenizer.encode(text, add_special_tokens=False)) for text in texts)

    def calibrate(self, family: Family) -> bool:
        """See ``Library.calibrate``."""
        return improve(family, lambda f: self.sensitivity(f, dtype="float32", seed=0))

    def churn(self) -> None:
        """See ``Library.churn``."""
        churn()

    def versions(self) -> dict[str, str]:
        """See ``Library.versions``."""
        return package_versions("mlx", self.package.replace("_", "-"), "transformers", "numpy")

    def device(self) -> str:
        """See ``Library.device``."""
        return device_name()


def _named(folder: Path) -> Family:
    return Family(folder.name, Facts(), {})
