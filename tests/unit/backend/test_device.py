"""The device and the versions, in words."""

import platform

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
