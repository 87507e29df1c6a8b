"""The device and the versions, in words."""

import platform
import threading

import mlx.core as mx

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


def test_leaving_the_main_thread_does_nothing():
    x = mx.ones(3) + 1
    device.leave_thread()
    assert x.tolist() == [2, 2, 2]


def test_leaving_another_thread_does_no_harm_to_this_one():
    found = []

    def work():
        found.append((mx.ones(3) * 2).tolist())
        device.leave_thread()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [[2, 2, 2]]
    assert (mx.ones(2) + 1).tolist() == [2, 2]
