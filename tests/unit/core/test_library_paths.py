"""Checkouts in place of installed packages; each in a process of its own, as it changes imports."""

import os
import subprocess
import sys

import pytest

from conformance.core.errors import ConformanceError
from conformance.core.library_paths import in_words, use

REPORT = """
import os, subprocess, sys
from conformance.core.library_paths import chosen_options, import_used, use
from conformance.core.errors import ConformanceError
try:
    {before}
    use({folders!r})
    import_used()
    import mlx_lm
except ConformanceError as error:
    sys.exit(str(error))
child = "import mlx_lm; print(mlx_lm.__file__)"
print(mlx_lm.__file__)
subprocess.run([sys.executable, "-P", "-c", child], check=True)
print(*chosen_options())
"""


def package(folder, name="mlx_lm", text="__version__ = '9.9.9'\n"):
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)
    return folder


def report(*folders, before="pass"):
    """What a process that uses the folders imports, and its child; or the sentence."""
    code = REPORT.format(folders=[str(f) for f in folders], before=before)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
    )
    return done.stdout.split("\n")[:-1] or [done.stderr.strip()]


def test_the_option_is_found_in_both_spellings():
    words = ["run", "--library-path", "a", "--family", "x", "--library-path=b", "--library-path"]
    assert sorted(in_words(words)) == ["a", "b"]


def test_a_process_and_its_children_import_the_checkout(tmp_path):
    root = package(tmp_path / "mlx-lm")
    file = str(root / "mlx_lm" / "__init__.py")
    assert report(root) == [file, file, f"--library-path {root}"]


def test_the_package_folder_itself_will_do(tmp_path):
    root = package(tmp_path / "mlx-lm")
    assert report(root / "mlx_lm")[0] == str(root / "mlx_lm" / "__init__.py")


def test_the_same_folder_twice_is_one(tmp_path):
    root = package(tmp_path / "mlx-lm")
    assert report(root, root)[-1] == f"--library-path {root}"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda root: [root / "nowhere"], "there is no folder"),
        (lambda root: [root], "has no package folder mlx_lm or mlx_vlm"),
        (lambda root: [package(root / "tests", "other") / "other"], "has no package folder"),
        (lambda root: [package(root / "a"), package(root / "b")], "both have mlx_lm"),
    ],
)
def test_a_wrong_folder_is_one_sentence(tmp_path, make, says):
    folders = make(tmp_path)
    with pytest.raises(ConformanceError, match=says):
        use(folders)


def test_a_library_that_is_loaded_from_elsewhere_is_refused(tmp_path):
    first, second = package(tmp_path / "a"), package(tmp_path / "b")
    before = f"sys.path.insert(0, {str(first)!r}); import mlx_lm"
    assert f"mlx_lm was already imported from {first}/mlx_lm" in report(second, before=before)[0]


def test_a_checkout_that_cannot_be_imported_is_one_sentence(tmp_path):
    root = package(tmp_path / "mlx-lm", text="import nothing_of_that_name\n")
    (line,) = report(root)
    assert f"mlx_lm of {root} cannot be imported: ModuleNotFoundError" in line
    assert "Traceback" not in line
