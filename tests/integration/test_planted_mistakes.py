"""A mistake in a copy of mlx-lm: every output says the same of it first, and says where it is."""

import html
import importlib.util
import re
import shutil
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

from conformance.report.pages.environment import case_href


class Mistake(NamedTuple):
    """What is replaced in which file, the cases that are run, and what is said first of them."""

    file: str
    right: str
    wrong: str
    families: tuple[str, ...]
    scenarios: tuple[str, ...]
    sentence: str
    first: str
    failures: int


_FILTER = "        self.offset = self.offset[batch_indices]\n"
_PADDING = "        self.left_padding = self.left_padding[batch_indices]\n"
_PROCESSORS = "        self.logits_processors = [self.logits_processors[idx] for idx in keep]\n"
_REST = (  # only of the batch that decodes
    "        self.max_tokens = [self.max_tokens[idx] for idx in keep]\n"
    "        self.stop_sequences = [self.stop_sequences[idx] for idx in keep]\n"
    "\n        self._next_tokens"
)
_TOTAL = "        total_prompt_tokens = "
# Beside other tests an explanation takes longer.
_WAYS = ("--jobs", "1", "--tier", "default", "--dtype", "float32", "--explain-seconds", "80")
MISTAKES = {
    "all rows rotate from the offset of row 0": Mistake(
        "models/llama.py",
        "offset=cache.offset)",
        "offset=cache.offset if isinstance(cache.offset, int) else cache.offset[0])",
        ("llama",),
        ("ragged", "invalid"),
        "llama: 2 cases fail, first at `ragged`: begins at model.layers.0.self_attn.rope "
        "(Llama3RoPE), like defects of the class 'rope offset'. Known defects aside.",
        "mlx_lm/llama/ragged/float32/0",
        2,
    ),
    "a mask without its window": Mistake(
        "models/gemma3_text.py",
        "                window_size=self.window_size,\n",
        "",
        ("gemma3_text",),
        ("repeat", "rechunked"),
        "gemma3_text: 2 cases fail, first at `repeat`: the single stream and the pass without a "
        "cache differ by ",
        "mlx_lm/gemma3_text/repeat/float32/0",
        2,
    ),
    "a filter that forgets left padding": Mistake(
        "models/cache.py",
        f"{_FILTER}{_PADDING}\n        # Shift",
        f"{_FILTER}\n        # Shift",
        ("llama", "qwen3"),
        ("ragged", "early_finish"),
        "2 families: 4 cases fail, first at `ragged` (llama): raised at mlx_lm/models/base.py:",
        "mlx_lm/llama/ragged/float32/0",
        4,
    ),
    "processors that stay when their row leaves": Mistake(
        "generate.py",
        f"{_PROCESSORS}{_REST}",
        _REST,
        ("llama",),
        ("samplers", "structured"),
        "llama: 2 cases fail, first at `samplers`: logprobs are wrong: the model's are the single "
        "stream's, the engine's output differs; no class of defects fits.",
        "mlx_lm/llama/samplers/float32/0",
        2,
    ),
    "a single stream that forgets a token of its prompt": Mistake(
        "generate.py",
        _TOTAL,
        f"        prompt = prompt[1:] if len(prompt) > 3 else prompt\n{_TOTAL}",
        ("llama",),
        ("batch_of_one", "ragged"),
        "llama: 2 cases fail, first at `batch_of_one`: output token 0 is ",
        "mlx_lm/llama/batch_of_one/float32/0",
        2,
    ),
}


def planted(mistake, folder):
    """A copy of the installed library with the mistake in it."""
    installed = Path(importlib.util.find_spec("mlx_lm").origin).parent
    unneeded = shutil.ignore_patterns("__pycache__")
    shutil.copytree(installed, folder / "mlx_lm", ignore=unneeded)
    file = folder / "mlx_lm" / mistake.file
    text = file.read_text(encoding="utf-8")
    assert mistake.right in text, "mlx-lm is another one"
    file.write_text(text.replace(mistake.right, mistake.wrong), encoding="utf-8")
    return folder


# Its place is found, and two cases have it.
BY_DAY = "all rows rotate from the offset of row 0"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] * (name != BY_DAY)) for name in MISTAKES],
)
def test_every_output_begins_with_the_same_sentence(name, conformance, tmp_path):
    mistake = MISTAKES[name]
    path = str(planted(mistake, tmp_path / "library"))  # and no toys
    chosen = [part for family in mistake.families for part in ("--family", family)]
    chosen += [part for scenario in mistake.scenarios for part in ("--scenario", scenario)]
    outputs = ("--json", "r.jsonl", "--junit", "r.xml", "--report", "pages")
    done = conformance("run", "--engine", "mlx_lm", *chosen, *outputs, *_WAYS, PYTHONPATH=path)
    assert done.code == 1, done

    # The terminal: the first line after the run.
    sentence = next(line for line in done.out.splitlines() if line.startswith(mistake.sentence))
    alone = sentence.endswith(" nats. The single stream is the odd one out.")
    assert alone == ("single stream that" in name)
    assert done.out.partition("\n\n")[2].startswith(f"{sentence}\n")

    # JUnit: every failing case has it.
    failures = list(ET.parse(tmp_path / "r.xml").iter("failure"))
    assert [failure.get("message") for failure in failures] == [sentence] * mistake.failures

    # Pages: in the first section of the overview, and on each case's page.
    shown = html.escape(sentence, quote=True).replace("&#x27;", "&#39;")
    shown = re.sub("`(.*?)`", r"<code>\1</code>", shown)
    assert shown in (tmp_path / "pages" / "index.html").read_text().split("<section ")[1]
    assert shown in (tmp_path / "pages" / case_href(mistake.first)).read_text()

    # Of the results alone, in continuous integration.
    explained = tmp_path / "pages" / "explained"
    more = ("--explained", str(explained)) if explained.is_dir() else ()
    report = ("report", "r.jsonl", "--annotations", "--to", "summary.md")
    done = conformance(*report, *more, PYTHONPATH=path)
    assert done.code == 1, done
    (annotation,) = done.out.splitlines()
    assert annotation.partition("::error title=")[2].partition("::")[2].startswith(sentence)
    first = (tmp_path / "summary.md").read_text().splitlines()[:5]
    assert first[2] == "### 1 finding"
    bare = sentence.replace("`", "")
    assert first[4] == f"1. `{bare}` Evidence: `conformance show {mistake.first}`"
