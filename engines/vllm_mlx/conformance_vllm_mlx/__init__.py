"""vllm-mlx as engines of mlx-conformance: the hooks. What each hook needs is imported in it."""

from pathlib import Path

from conformance import hookimpl

_NAMES = ("vllm_mlx", "vllm_mlx_paged")


@hookimpl
def conformance_engine_names():
    """Without these nothing is imported."""
    return list(_NAMES)


@hookimpl
def conformance_engines():
    """``EngineCore`` with its default prefix cache, and with its paged one."""
    from conformance_vllm_mlx.engine import PagedEngine, VllmMlxEngine

    return [VllmMlxEngine, PagedEngine]


@hookimpl
def conformance_families():
    """A sliding window that is longer than a prompt, as real models have it."""
    from conformance import load_family

    return [load_family(Path(__file__).parent / "gemma3_long_window.json")]


@hookimpl
def conformance_mends():
    """Repairs of the known defects."""
    from conformance_vllm_mlx.mends import MENDS

    return list(MENDS)


@hookimpl
def conformance_expectations():
    """The known defects."""
    return [Path(__file__).parent / "known"]
