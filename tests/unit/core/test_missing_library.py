"""The dynamic loader's errors, and nothing else, are this machine's."""

import ctypes

import pytest

from conformance.core import missing_library
from conformance.core.errors import ModelError, Unsupported
from conformance.core.failures import failure_of, says_unsupported
from conformance.core.missing_library import lacking, loader_error, remedied
from conformance.core.verdict import Finding, Verdict

GL = ImportError("libGL.so.1: cannot open shared object file: No such file or directory")


def raised_from(error, cause):
    """The error as it is caught, raised from another."""
    try:
        raise error from cause
    except type(error) as caught:
        return caught


def raised_while(error, handled):
    """The error as it is caught, raised while another was handled."""
    try:
        try:
            raise handled
        except type(handled):
            raise error  # noqa: B904
    except type(error) as caught:
        return caught


def finding(got, verdict=Verdict.UNSUPPORTED):
    return Finding(verdict, "failure", "raised", got=got)


def test_a_real_file_that_is_not_there_is_a_failure_unless_it_is_named_here(monkeypatch):
    name = "libnothing_of_that_name.so.7"
    with pytest.raises(OSError, match="cannot open") as caught:
        ctypes.CDLL(name)
    assert loader_error(caught.value) is None
    refused = finding(f"OSError: {caught.value}")
    assert lacking(Verdict.UNSUPPORTED, [refused]) == ""
    monkeypatch.setitem(missing_library._PACKAGES, name, "nothing")
    assert loader_error(caught.value) is caught.value
    assert lacking(Verdict.UNSUPPORTED, [refused]) == name


def test_the_debian_package_is_named_where_it_is_known():
    assert "`apt-get install libgl1`" in remedied(GL)


@pytest.mark.parametrize("wrapper", [Unsupported("x: no"), ModelError("x: loading failed")])
def test_what_a_library_raises_from_it_is_the_same(wrapper):
    error = raised_from(wrapper, GL)
    assert loader_error(error) is GL
    assert says_unsupported(error)
    failure = failure_of(error, "loading")
    assert failure.unsupported
    assert f"{failure.type_name}: {failure.message}" == f"ImportError: {GL}"


def test_what_code_of_others_lacks_is_its_failure():
    assert not failure_of(raised_from(ModelError("x"), GL), "step 3", theirs=True).unsupported
    assert failure_of(raised_from(Unsupported("no"), None), "step 3", theirs=True).unsupported


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'cv2'"),
        ImportError("/x/cv2.so: undefined symbol: gluOrtho2D"),
        RuntimeError("libGL.so.1: cannot open shared object file"),
        ValueError("the file libGL.so.1: cannot open shared object file"),
        FileNotFoundError(2, "No such file or directory", "model.safetensors"),
        raised_while(IndexError("a defect"), GL),
    ],
)
def test_other_errors_stay_failures(error):
    assert loader_error(error) is None
    assert not says_unsupported(error)


def test_a_case_lacks_a_file_only_if_all_that_was_refused_is_from_it():
    gl = finding(f"ImportError: {GL}")
    assert lacking(Verdict.UNSUPPORTED, [gl]) == "libGL.so.1"
    assert lacking(Verdict.UNSUPPORTED, [gl, finding("GatherMM only supports float32")]) == ""
    assert lacking(Verdict.UNSUPPORTED, [finding("Unsupported: it says libGL.so.1")]) == ""
    assert lacking(Verdict.CRASH, [gl, finding("IndexError: x", Verdict.CRASH)]) == ""
    assert lacking(Verdict.UNSUPPORTED, []) == ""
