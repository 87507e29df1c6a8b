"""mlx-vlm's server as the plugin of another release: faults and mends are for the current one."""

from __future__ import annotations

from conformance.plugins.servers.mlx_vlm_plugin import (
    conformance_engine_names,
    conformance_engines,
    conformance_scenarios,
)

__all__ = ["conformance_engine_names", "conformance_engines", "conformance_scenarios"]
