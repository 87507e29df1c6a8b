"""The device and the versions, in words."""

import os
import platform
import subprocess
import sys

from conformance.backend import device


def test_the_device_is_named_with_its_chip():
    name = device.device_name()
    assert name.startswith(("cpu (", "gpu ("))
    assert len(name) > len("cpu ()")


def test_versions_are_those_of_installed_packages_and_python():
    found = device.package_versions("numpy", "no-such-package-here")
    assert found["python"] == platform.python_version()
    assert found["numpy"].count(".") == 2
    assert "no-such-package-here" not in found


def test_a_gpu_that_may_shorten_its_float32_products_says_so(monkeypatch):
    monkeypatch.setattr(device.mx, "default_device", lambda: device.mx.Device(device.mx.gpu))
    monkeypatch.setattr(device.mx, "device_info", lambda _: {"device_name": "M9"})
    monkeypatch.setenv("MLX_ENABLE_TF32", "1")
    assert device.device_name() == "gpu (M9, TF32)"
    monkeypatch.setenv("MLX_ENABLE_TF32", "0")
    assert device.device_name() == "gpu (M9)"


def test_float32_products_are_whole_unless_the_user_says_otherwise():
    script = "import os, conformance.backend; print(os.environ['MLX_ENABLE_TF32'])"
    env = {name: value for name, value in os.environ.items() if name != "MLX_ENABLE_TF32"}
    for given, wanted in (({}, "0"), ({"MLX_ENABLE_TF32": "1"}, "1")):
        ran = subprocess.run(
            [sys.executable, "-c", script],
            env=env | given,
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stdout.strip() == wanted


def test_a_device_that_computes_nothing_more_says_why(monkeypatch):
    assert device.device_error() == ""

    def fails(*_):
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(device.mx, "synchronize", fails)
    assert device.device_error() == "an illegal memory access was encountered"


def test_the_cpu_is_used_where_it_is_asked_for(monkeypatch):
    chosen = []
    monkeypatch.setattr(device.mx, "set_default_device", chosen.append)
    device.use_cpu()
    assert chosen == [device.mx.Device(device.mx.cpu)]
