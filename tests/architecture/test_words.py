"""The project's words are those of its glossary and of pytest: a few others are kept out."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
THIS = "tests/architecture/test_words.py"  # it has to name them
KINDS = {".md", ".py", ".j2", ".toml", ".sh"}

# Whole words and phrases, in any case; a blank stands for any white space within a line.
BANNED = (
    # A family is sensitive or not, a signal is large or small, a module has a hook.
    *("hear", "hears", "heard", "hearing", "unheard", "deaf", "deafness"),
    *("loud", "louder", "loudest", "loudly", "loudness"),
    *("too quiet", "quietly", "quieter", "quietest"),
    *("listen", "listens", "listened", "listening"),
    # A command prints, reports or shows; a check detects; two things are distinguished.
    *("tell", "tells", "telling", "told", "untold", "retell", "retells", "retelling", "retold"),
    *("speak", "speaks", "speaking", "spoke", "spoken", "speech"),
    *("last words", "in silence", "without a word", "the truth"),
    # A process crashes, exits or is killed.
    *("die", "dies", "died", "dying", "dead", "death", "deaths"),
    *("ledger", "lingering", "storey", "storeys"),
)
# What libraries themselves name so.
QUOTED = (
    'for kind in ("vision", "speech")',  # adapters of phi4mm
    *('if kind == "speech"', '"speech_lora"'),
    "# Speech to speech.",  # a kind of model
    "nobody was listening",  # a sentence of a prompt
    "other_thread lingering probing",  # modules of version 0.1
    *('name="heard"', 'name="unheard"', 'name="deaf"'),  # fields of published results
)

TERMS_MAX = 25


def offences(root: Path) -> list[str]:
    """Lines with a word or phrase that is not used here: ``README.md:3: told``."""
    words = "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in BANNED)
    pattern = re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE)
    return [
        f"{name}:{number}: {found[0].lower()}"
        for name, path in _texts(root)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        for found in pattern.finditer(_without_quotes(line))
    ]


def _texts(root: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of each text of a clone; without git, as in an archive, of what is there."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=False)
    everything = (str(path.relative_to(root)) for path in root.rglob("*"))
    for name in sorted(done.stdout.split("\0") if done.returncode == 0 else everything):
        path = root / name
        if path.suffix in KINDS and name != THIS and path.is_file() and not path.is_symlink():
            yield name, path


def _without_quotes(line: str) -> str:
    for quote in QUOTED:
        line = line.replace(quote, "")
    return line


def glossary(text: str) -> dict[str, str]:
    """The terms of the section "Glossary" with their meanings; one row may have several."""
    _, _, section = text.partition("\n## Glossary\n")
    rows = re.findall(r"^\| (?!term \|)([\w, ]+) \| (.+) \|$", section.partition("\n## ")[0], re.M)
    return dict(rows)


def problems(terms: dict[str, str], code: str) -> list[str]:
    """Too many terms; terms, and names in backticks of their meanings, that the code never uses."""
    named = [term for row in terms for term in row.split(", ")]
    named += [name for meaning in terms.values() for name in re.findall(r"`(\w+)`", meaning)]
    long = [f"{len(terms)} terms, {TERMS_MAX} are allowed"] if len(terms) > TERMS_MAX else []
    return long + [name for name in named if not re.search(_loosely(name), code, re.IGNORECASE)]


def _loosely(term: str) -> str:
    """A pattern for a term whose words a line break, a hyphen or an underscore may separate."""
    return r"(?<![^\W_])" + r"[\s_-]+".join(map(re.escape, term.split())) + r"(?![^\W_])"


def test_the_project_keeps_to_its_words():
    assert offences(ROOT) == []


def test_each_banned_word_is_found_wherever_it_is(tmp_path):
    names = ("README.md", "a.html.j2", "a/b.py", "ci/z.sh", "x/y.toml")
    lines = ["fine", *(f'# "{word.capitalize()}", it says.' for word in BANNED)]
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines), encoding="utf-8")
    found = [f"{n}:{line}: {word}" for n in names for line, word in enumerate(BANNED, start=2)]
    assert offences(tmp_path) == found


def test_only_whole_words_count(tmp_path):
    (tmp_path / "a.md").write_text("die-hard shear, retort, clouds, --quiet, deadline, studies\n")
    assert offences(tmp_path) == ["a.md:1: die"]


def test_what_a_library_names_so_may_be_quoted(tmp_path):
    (tmp_path / "a.py").write_text('for kind in ("vision", "speech"): ...\nspeech = 1\n')
    assert offences(tmp_path) == ["a.py:2: speech"]


def test_what_git_ignores_is_not_read(tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("build/\n")
    for name in ("build", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.md").write_text("told\n")
    assert offences(tmp_path) == ["kept/a.md:1: told"]


def test_the_glossary_is_short_and_its_terms_are_in_use():
    terms = glossary((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert terms
    code = (path.read_text(encoding="utf-8") for path in (ROOT / "conformance").rglob("*.py"))
    assert problems(terms, "\n".join(code)) == []


def test_a_term_that_the_code_does_not_use_is_found():
    text = "\n## Glossary\n\n| term | meaning |\n|---|---|\n| kill, spare | `Fault`, `Ghost` |\n"
    code = "a fault that a check\nkills; spare_rows"
    assert problems(glossary(text), code) == ["kill", "Ghost"]


def test_a_long_glossary_is_found():
    rows = "".join(f"| term {number} | meaning |\n" for number in range(TERMS_MAX + 1))
    terms = glossary(f"\n## Glossary\n\n| term | meaning |\n|---|---|\n{rows}")
    assert problems(terms, " ".join(terms)) == ["26 terms, 25 are allowed"]
