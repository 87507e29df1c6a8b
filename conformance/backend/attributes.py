"""A copy of the attributes of a model's modules, to restore them later."""

from __future__ import annotations

from typing import Any

from mlx.nn.layers.base import Module


class Attributes:
    """Every attribute of every module of ``model``, as it is now."""

    def __init__(self, model: Module) -> None:
        self._saved = [
            (module, _copied(module), _copied(vars(module))) for _, module in model.named_modules()
        ]

    def restore(self) -> None:
        """Restore all attributes; attributes added since are removed."""
        for module, items, attributes in self._saved:
            _restore(module, items)
            _restore(vars(module), attributes)

    def changed(self) -> tuple[str, ...]:
        """The names of changed attributes."""
        return tuple(
            sorted(
                {
                    name
                    for module, items, attributes in self._saved
                    for state, was in ((module, items), (vars(module), attributes))
                    for name in state.keys() | was.keys()
                    if not name.startswith("__") and state.get(name) is not was.get(name)
                    if not isinstance(was.get(name), list | dict)
                }
            )
        )


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    """A copy with copies of the lists and dictionaries in ``state``."""
    return {k: type(v)(v) if type(v) in (list, dict) else v for k, v in state.items()}


def _restore(state: dict[str, Any], was: dict[str, Any]) -> None:
    for name in state.keys() - was.keys():
        del state[name]
    dict.update(state, _copied(was))  # nn.Module.update takes parameters only
