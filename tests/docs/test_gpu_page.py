"""docs/gpu.md: its list of Metal's places is that of the installed releases, its scripts run."""

import importlib.metadata
import os
import runpy
import shutil
import subprocess
import sys
from unittest import mock

import mlx.core as mx
import pytest
from docs.documented import ROOT

PAGE = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
OPERATIONS = runpy.run_path(str(ROOT / "ci/operations_by_device.py"))
LISTING = runpy.run_path(str(ROOT / "ci/metal_paths.py"))
SCRIPTS = sorted((ROOT / "docs/defects/mlx").glob("*.py"))
# What is wrong on a CPU, and what the script prints there.
ON_A_CPU = {
    "functions_of_empty_arrays.py": (
        "quantized_matmul: expected shape (1, 0, 64); got the end of the process"
    ),
    "logsumexp_of_a_vocabulary.py": ": 3 sums are more than 8 units in the last place off",
}

TEXT = """\
import mlx.core as mx

_kernel = mx.fast.metal_kernel(name="a", source="")

def make():
    if not mx.metal.is_available():
        return None
    return mx.fast.metal_kernel(
        name="b",
    )

def use(x):
    return x if mx.default_device() != mx.gpu else make()(x)
"""


def test_kernels_and_questions_are_found_with_their_lines():
    found = LISTING["places_in"](TEXT, "mlx_lm/a.py")
    assert [(str(place), place.kind, place.name) for place in found] == [
        ("mlx_lm/a.py:3", "kernel", "_kernel"),
        ("mlx_lm/a.py:6", "question", "make"),
        ("mlx_lm/a.py:8", "kernel", "make"),
        ("mlx_lm/a.py:13", "question", "use"),
    ]
    assert "2 kernels, and 2 places that ask" in LISTING["text_of"](found)
    assert "| `mlx_lm/a.py` | 3 `_kernel`, 8 `make` | 6, 13 |" in LISTING["text_of"](found)


@pytest.mark.parametrize("package", ["mlx-lm", pytest.param("mlx-vlm", marks=pytest.mark.nightly)])
def test_the_list_is_that_of_the_installed_releases(package):
    if f"{package} {importlib.metadata.version(package)}" not in PAGE:
        pytest.skip(f"the page is about another release of {package}")
    marks = LISTING["BEGIN"], LISTING["END"]
    made = LISTING["between"](PAGE, *marks, LISTING["text_of"](LISTING["places"]()))
    assert made == PAGE, "run `python ci/metal_paths.py`"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_each_script_is_named_and_says_what_it_needs(script):
    assert f"docs/defects/mlx/{script.name}" in PAGE
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    if mx.default_device() == mx.gpu:
        assert done.returncode in (0, 1, 2)
    elif script.name in ON_A_CPU:
        assert (done.returncode, ON_A_CPU[script.name] in done.stdout) == (1, True)
    else:
        assert (done.returncode, done.stdout[:24]) == (2, "this needs mlx on CUDA: ")


# Operations on two devices: a function that computes otherwise stands for the other one ----------


def played(name, otherwise=None, by=1.0):
    def again(function):
        return (lambda *a, **k: function(*a, **k) * by) if function is otherwise else function

    return OPERATIONS["played"](name, again)


def test_the_operation_that_is_rounded_otherwise_is_the_first_of_the_list():
    first, second, *_ = played("mlx_vlm/multi_modality", mx.fast.layer_norm, 1 + 1e-4)
    assert str(first).endswith("mx.fast.layer_norm(1x16x96, 96, 96) in request 'image'")
    assert 0.9e-4 < first.difference < 1.1e-4
    assert second.difference == 0


def test_a_result_that_is_not_finite_on_one_device_is_as_far_as_can_be():
    first, *_ = played("mlx_lm/llama", mx.logsumexp, float("nan"))
    assert (first.name, first.difference) == ("mx.logsumexp", float("inf"))


def test_functions_are_as_they_were_afterwards_and_compiled_again():
    before = (mx.matmul, mx.fast.rope, mx.array.__add__)
    with (
        mock.patch.object(mx, "disable_compile", wraps=mx.disable_compile) as off,
        mock.patch.object(mx, "enable_compile", wraps=mx.enable_compile) as on,
    ):
        assert {found.difference for found in played("mlx_lm/llama")} == {0.0}
    assert (mx.matmul, mx.fast.rope, mx.array.__add__) == before
    assert (off.call_count, on.call_count) == (1, 1)


@pytest.mark.skipif(mx.is_available(mx.Device(mx.gpu)), reason="there is a GPU here")
@pytest.mark.parametrize("arguments", [["mlx_lm/llama"], []])
def test_without_a_gpu_or_a_name_it_says_so(arguments):
    script = ROOT / "ci/operations_by_device.py"
    done = subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "this needs a GPU that mlx can use\n"
        if arguments
        else "python ci/operations_by_device.py LIBRARY/FAMILY\n"
    )


# The two commands, as far as a machine without a GPU can run them ---------------------------------

CONFORMANCE = """\
#!/usr/bin/env bash
echo "$MLX_ENABLE_TF32 $METAL_REACHED $*" >>"$CALLS"
while [ $# -gt 0 ]; do
  if [ "$1" = --json ]; then cp "$STORED" "$2"; fi
  if [ "$1" = "$BROKEN" ]; then exit 2; fi
  shift
done
if [ -n "$METAL_REACHED" ]; then echo "$KERNEL" >"$METAL_REACHED"; fi
exit 1
"""


def tool(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def clone(tmp_path):
    """A folder with the scripts, of which setting up and playing are stand-ins; it runs one."""
    shutil.copytree(ROOT / "ci", tmp_path / "ci")
    tool(tmp_path / "ci/setup.sh", 'echo "set up $CONFORMANCE_EXTRAS" >>"$CALLS"\n')
    tool(tmp_path / ".venv/bin/conformance", CONFORMANCE)
    tool(tmp_path / ".venv/bin/python", f'#!/usr/bin/env bash\nexec {sys.executable} "$@"\n')
    stored = ROOT / "tests/docs/stored_results.jsonl"

    def run(script, *options, **variables):
        given = {"METAL_REACHED": "", "CONFORMANCE_EXTRAS": "", "BROKEN": "no", **variables}
        environment = {**os.environ, "CALLS": str(tmp_path / "calls"), "STORED": str(stored)}
        environment["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment.pop("MLX_ENABLE_TF32", None)
        return subprocess.run(
            ["bash", tmp_path / "ci" / script, *options],
            capture_output=True,
            text=True,
            env=environment | given,
            check=False,
        )

    run.folder = tmp_path
    return run


def test_without_a_gpu_each_ends_in_one_sentence(clone):
    tool(clone.folder / "bin/nvidia-smi", "#!/usr/bin/env bash\nexit 9\n")
    tool(clone.folder / "bin/uname", "#!/usr/bin/env bash\necho Linux\n")
    for script in ("cuda.sh", "metal.sh"):
        done = clone(script)
        assert done.returncode == 2
        assert done.stderr.startswith(f"ci/{script}: this ")
        assert len(done.stderr.splitlines()) == 1
    assert not (clone.folder / "calls").exists(), "nothing was set up"


@pytest.mark.parametrize(("broken", "code"), [("no", 1), ("bfloat16", 2)])
def test_cuda_plays_each_dtype_on_all_gpus_without_tf32(clone, broken, code):
    tool(clone.folder / "bin/nvidia-smi", "#!/usr/bin/env bash\necho 'GPU 0: NVIDIA H9'\n")
    done = clone("cuda.sh", "--family", "llama", BROKEN=broken)
    assert done.returncode == code, done
    first, *calls = (clone.folder / "calls").read_text().splitlines()
    assert first == "set up dev,cuda"
    wanted = (
        "0  run --tier default --devices all --dtype {0} --json results/cuda/{0}.jsonl "
        "--family llama"
    )
    assert calls == [wanted.format(dtype) for dtype in ("float32", "bfloat16", "float16")]
    page = (clone.folder / "results/cuda/summary.md").read_text()
    assert page.startswith("# mlx-conformance on gpu (NVIDIA H9)")
    assert ("was not completed" in done.stderr) == (code == 2)


def test_metal_leaves_a_page_with_the_kernels_that_were_called(clone):
    mac = 'if [ "$1" = -m ]; then echo arm64; else echo Darwin; fi'
    tool(clone.folder / "bin/uname", f"#!/usr/bin/env bash\n{mac}\n")
    kernels = [str(place) for place in LISTING["places"]() if place.kind == "kernel"]
    done = clone("metal.sh", "--family", "llama", KERNEL=kernels[0])
    assert done.returncode == 1, done
    call = (clone.folder / "calls").read_text().splitlines()[-1]
    assert "run --fresh --tier default --plugin metal_reached --json /" in call
    assert call.endswith("--family llama")
    page = (clone.folder / "results/metal/summary.md").read_text()
    assert f"## Metal kernels that were called: 1 of {len(kernels)}" in page
    assert f"- `{kernels[0]}`" in page
    assert "please send" in done.stdout


# The page -----------------------------------------------------------------------------------------


def summary(*arguments):
    command = [sys.executable, ROOT / "ci/device_summary.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_page_has_versions_counts_and_what_is_not_expected():
    page = summary(ROOT / "tests/docs/stored_results.jsonl").stdout
    for line in (
        "# mlx-conformance on gpu (NVIDIA H9)",
        "- GPUs, which workers took in turn: `0, 1`",
        "4 of 5 cases; 2 not as expected.",
        "| exact | 1 | 1 |  |",
        "| diverged |  | 1 | 1 |",
        "| crash |  | 1 | 1 |",
        "## Not as expected: 2",
        "| `mlx_lm/mamba/wide/float32/0` | crash "
        "| `request 'b' differs at output token 3: token 93` |",
    ):
        assert line in page.splitlines(), page
    assert "mlx 0.32.4" in page


def test_a_file_that_is_no_result_is_one_sentence(tmp_path):
    (tmp_path / "r.jsonl").write_text("{}\n")
    done = summary(tmp_path / "r.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("ci/device_summary.py: ")
    assert len(done.stderr.splitlines()) == 1


def test_kernels_are_noted_once_with_the_line_that_made_them(tmp_path):
    noting = runpy.run_path(str(ROOT / "ci/metal_reached.py"))["noting"]
    folder = tmp_path / "site-packages" / "mlx_lm" / "models"
    folder.mkdir(parents=True)
    module = folder / "a.py"
    module.write_text("def make(kernel):\n    return kernel(\n        name='a',\n    )\n")
    make = runpy.run_path(str(module))["make"]
    called = []
    kernel = make(noting(lambda **_: lambda *a, **m: called.append((a, m)), tmp_path / "log"))
    assert not (tmp_path / "log").exists(), "made is not called"
    kernel(1, grid=2)
    kernel(3)
    assert called == [((1,), {"grid": 2}), ((3,), {})]
    assert (tmp_path / "log").read_text() == "mlx_lm/models/a.py:2\n"
