"""Defects that can be put into the engines, by the plugin whose engines host them.

What tries them is in ``power/mutation/``, how one is declared in ``core/faults/``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from conformance.core.errors import PluginError
from conformance.core.faults import Fault
from conformance.core.unavailable import Unavailable, error_text
from conformance.run.registry import Registry, build_registry

# Of each plugin the package of its engines' faults.
_OWN = {
    "mlx_lm": "mlx_lm",
    "mlx_lm_server": "servers.mlx_lm",
    "mlx_vlm": "mlx_vlm",
    "mlx_vlm_server": "servers.mlx_vlm",
    "reference_engine": "reference_engine",
}
_HOOK = "conformance_faults"


def with_faults(registry: Registry) -> Registry:
    """The registry with the faults of this project beside those that plugins give by their hook.

    Those of plugins that are left out are left out, too.

    Raises:
        PluginError: a plugin has a fault of the same engine and name.
    """
    found: dict[str, Fault] = {}
    lacking: list[Unavailable] = []
    for plugin in (one.name for one in registry.plugins if one.name in _OWN):
        for one in _faults_of(plugin):
            if isinstance(one, Fault):
                found[one.key] = one
            else:
                engines = _engines_of(plugin, registry)
                lacking.append(replace(one, plugin=plugin, hook=_HOOK, engines=engines))
    if twice := sorted(found.keys() & registry.faults.keys()):
        raise PluginError(f"fault {twice[0]!r} of a plugin exists already in this project")
    return replace(
        registry,
        faults={**found, **registry.faults},
        unavailable=(*registry.unavailable, *lacking),
    )


def registry_with_faults(
    extra: Iterable[object] = (),
    *,
    family_files: Iterable[Path] = (),
    engines: Iterable[str] = (),
) -> Registry:
    """As ``build_registry``, with the faults of this project."""
    return with_faults(build_registry(extra, family_files=family_files, engines=engines))


def _faults_of(plugin: str) -> Iterator[Fault | Unavailable]:
    try:
        module = importlib.import_module(f"{__name__}.{_OWN[plugin]}")
    except Exception as error:  # noqa: BLE001 - whatever a library raises
        yield Unavailable("its faults", error_text(error))
    else:
        yield from module.FAULTS


def _engines_of(plugin: str, registry: Registry) -> frozenset[str]:
    """The engines of a plugin, and those that decode the models of its library."""
    return frozenset(
        name
        for name, engine in registry.engines.items()
        if engine.library == plugin
        or name.startswith(plugin)
        or engine.__module__.startswith(f"conformance.plugins.{plugin}.")
    )
