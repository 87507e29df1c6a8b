"""Facts of process and machine that numbers can depend on: settings, interpreter, devices."""

from __future__ import annotations

import glob
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from conformance.core.content_keys import file_digest
from conformance.core.kernel_caches import VARIABLES
from conformance.core.processes import run_to_end
from conformance.reference.installed_files import signature

# Variables that no result depends on. All others count, including unknown ones.
_IGNORED = frozenset(
    (
        "HOME", "PWD", "OLDPWD", "SHLVL", "_", "USER", "LOGNAME", "USERNAME", "MAIL", "HOSTNAME",
        "HOST", "SHELL", "PATH", "TEMP", "TMP", "TERM", "COLORTERM", "COLUMNS", "LINES",
        "LS_COLORS", "LSCOLORS", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "TTY_COMPATIBLE", "PS1",
        "PS2", "PROMPT_COMMAND", "EDITOR", "VISUAL", "PAGER", "LESS", "LESSOPEN", "LESSCLOSE",
        "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "STY", "WINDOWID", "VIRTUAL_ENV",
        "VIRTUAL_ENV_PROMPT", "CI", "INVOCATION_ID", "JOURNAL_STREAM", "SECURITYSESSIONID",
        "HYPOTHESIS_STORAGE_DIRECTORY", "LC_TERMINAL", "LC_TERMINAL_VERSION",
    )
)  # fmt: skip
_IGNORED_BEGINNINGS = (
    "SSH_", "GITHUB_", "RUNNER_", "ACTIONS_", "GITLAB_", "CI_", "BUILDKITE", "CIRCLE", "JENKINS_",
    "TRAVIS", "TF_BUILD", "TMUX", "ITERM_", "TERM_", "VSCODE_", "XDG_", "DBUS_", "GPG_", "CLICOLOR",
    "__CF", "PYTEST_XDIST", "PYTEST_CURRENT", "CONFORMANCE_TESTS_",
)  # fmt: skip
# Compilers turn kernels into code; PATH matters only for where they are found.
_COMPILERS = ("g++", "c++", "clang++", "xcrun", "nvcc")


def process_facts() -> Iterator[str]:
    """The interpreter, how it was started, and what the environment sets."""
    yield sys.version
    yield f"{sys.flags} {sorted(sys._xoptions.items())} {sys.warnoptions}"
    for name, value in sorted(os.environ.items()):
        if name not in _IGNORED | VARIABLES and not name.startswith(_IGNORED_BEGINNINGS):
            yield f"{name}={value}"
    for name in _COMPILERS:
        place = shutil.which(name)
        real = Path(os.path.realpath(place)) if place else None
        yield f"{name} {real} {real and signature(real)}"
    for name in ("sitecustomize", "usercustomize"):
        file = getattr(sys.modules.get(name), "__file__", None)
        yield f"{name} {file and file_digest(Path(file))}"
    yield from _shadowing()


def _shadowing() -> Iterator[str]:
    """Modules in folders that precede the installed packages and have the name of one."""
    installed: set[str] = set()
    found = []
    for place in reversed(sys.path):
        folder = Path(place or ".")
        names = {entry.split(".", 1)[0] for entry in _listed(folder)} - {"__pycache__"}
        if place and any(folder.glob("*.dist-info")):
            installed |= names
        else:
            found += sorted(names & installed)
    yield f"shadowed {found}"


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def device_facts() -> str | None:
    """System, processor and GPUs, which decide how numbers are rounded; ``None`` if unknown."""
    return None if (gpu := _gpu()) is None else f"{platform.platform()}\n{_processor()}\n{gpu}"


def _processor() -> str | None:
    if sys.platform == "darwin":
        return _printed("sysctl", "-n", "machdep.cpu.brand_string", "hw.model", "kern.osversion")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU ")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _gpu() -> str | None:
    """Driver and names of NVIDIA's GPUs; empty if mlx is not for them."""
    if not any(glob.glob(f"{place}/mlx_cuda*.dist-info") for place in sys.path if place):  # noqa: PTH207
        return ""
    return _printed("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")


def _printed(*command: str) -> str | None:
    done = run_to_end(command, seconds=20)
    return done.output.strip() or None if done.good else None
