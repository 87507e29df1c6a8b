"""mlx-lm without transformers, until a tokenizer is used: then all is as with a plain import."""

import subprocess
import sys

IMPORT = "from conformance.reference.mlx_lm_import import import_mlx_lm; import_mlx_lm()\n"


def printed(code):
    """What a process of its own prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_model_is_built_and_decodes_without_transformers():
    code = """
import sys
from mlx_lm.generate import generate_step
from mlx_lm.models.llama import Model, ModelArgs
import mlx.core as mx
args = ModelArgs("llama", 32, 1, 32, 2, 1e-5, 16)
tokens = [token for token, _ in generate_step(mx.array([1, 2]), Model(args), max_tokens=2)]
print(len(tokens), "transformers" in sys.modules)
"""
    assert printed(IMPORT + code) == ["2", "False"]


def test_the_first_use_of_a_tokenizer_puts_the_real_names_everywhere():
    code = """
import mlx_lm, transformers
from mlx_lm import generate, utils, tokenizer_utils
import mlx_lm.generate, mlx_lm.utils
late = mlx_lm.utils.TokenizerWrapper
print(isinstance(3, late), isinstance(object.__new__(tokenizer_utils.TokenizerWrapper), late))
modules = [sys.modules["mlx_lm.utils"], sys.modules["mlx_lm.generate"]]
print(all(isinstance(3, one.TokenizerWrapper) is False for one in modules))
print(all(one.TokenizerWrapper is tokenizer_utils.TokenizerWrapper for one in modules))
print(sys.modules["mlx_lm.utils"]._load_tokenizer.__code__ is tokenizer_utils.load.__code__)
print(issubclass(tokenizer_utils.NewlineTokenizer, transformers.PreTrainedTokenizerFast))
"""
    assert printed(IMPORT + "import sys\n" + code) == ["False", *["True"] * 5]


def test_the_names_that_mlx_lm_exports_are_the_same():
    names = "import mlx_lm.generate, mlx_lm.utils; print(*sorted(vars(mlx_lm)), *sorted("
    names += "n for m in (mlx_lm.utils,) for n in vars(m)))"
    assert printed(IMPORT + names) == printed(names)
