"""``conformance golden check --cpu``: the device is chosen before any library is imported."""

import pytest
from click.testing import CliRunner

from conformance.app.cli.golden import check


@pytest.mark.parametrize(
    ("options", "wanted"),
    [(["--cpu"], ["cpu", "registry", "prepared"]), ([], ["registry"])],
)
def test_the_cpu_is_chosen_first_here_and_in_each_process(monkeypatch, options, wanted):
    order = []
    make = check.registry_of

    def registry(**more):
        order.append("registry")
        return make(**more)

    def processes(work, items, *, jobs, on_crash, prepare):
        if prepare is check._use_cpu:
            order.append("prepared")
        return iter(())

    monkeypatch.setattr(check, "registry_of", registry)
    monkeypatch.setattr(check, "in_processes", processes)
    monkeypatch.setattr(check, "_use_cpu", lambda: order.append("cpu"))
    done = CliRunner().invoke(check.command, ["--family", "llama", "--engine", "mlx_lm", *options])
    assert (done.exit_code, done.output) == (0, "0 goldens: 0 hold\n")
    assert order == wanted
