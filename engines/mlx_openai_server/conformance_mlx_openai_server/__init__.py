"""mlx-openai-server as an engine of mlx-conformance: the hooks."""

from pathlib import Path

from conformance import hookimpl

_NAME = "mlx_openai_server"


@hookimpl
def conformance_engine_names():
    """Without this one nothing is imported."""
    return [_NAME]


@hookimpl
def conformance_engines():
    """The server."""
    from conformance_mlx_openai_server.server import MlxOpenaiServer

    return [MlxOpenaiServer]


@hookimpl
def conformance_scenarios():
    """What is asked of servers."""
    from conformance.scenarios.served import SERVED_SCENARIOS

    return list(SERVED_SCENARIOS)


@hookimpl
def conformance_expectations():
    """The known defects."""
    return [Path(__file__).parent / "known"]
