"""The status site."""

import base64
import json
import re
from xml.etree import ElementTree as ET

import defects_by_hand
import pytest
import results_by_hand
from html_links import Page, broken_links

from conformance.core.invocation import Invocation
from conformance.core.verdict import Verdict
from conformance.report.pages.status_site import badge_stem, engine_href, write_status


@pytest.fixture
def site(tmp_path):
    known = defects_by_hand.known(
        defects_by_hand.entry("ssm-padding", suffers="mamba forgets its prompt.")
    )
    count = write_status(tmp_path / "site", results_by_hand.over_releases(), known)
    assert count == 4 + len(list((tmp_path / "site" / "cases").iterdir()))
    return tmp_path / "site"


def text_of(path):
    return " ".join(re.sub("<[^>]+>", " ", path.read_text(encoding="utf-8")).split())


def test_every_page_is_there_and_every_link_leads_somewhere(site):
    assert sorted(path.name for path in site.glob("*.html")) == [
        "defects.html",
        "engine-mlx_lm.html",
        "engine-mlx_vlm.html",
        "index.html",
    ]
    assert broken_links(site) == []
    assert json.loads((site / "report.json").read_text())["engines"] == {
        "mlx_lm": ["0.9.1", "0.10.0", "0.10.1"],
        "mlx_vlm": ["0.7.10"],
    }


def test_nothing_is_fetched_from_elsewhere_and_nothing_needs_a_script(site):
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not [link for link in Page(text).links if "//" in link], path
        names = re.findall(r'<script src="(?:../)?assets/([^"]*)"[^>]*>', text)
        assert len(names) == text.count("<script")
        assert names == ["theme.js", *["copy.js"] * (path.parent.name == "cases")], path
    for path in (site / "assets").iterdir():
        assert "//" not in path.read_text().replace("// ", ""), path


def test_the_first_page_compares_engines(site):
    text = text_of(site / "index.html")
    assert "mlx-lm 0.10.1, 2026-11-20" in text
    assert "Since 0.10.0 : 2 came, of 19 schedules" in text
    assert "prefill in pieces" not in text, "no case of it was run"
    assert "✓ 5/5" in text


def test_an_engines_page_has_its_history(site):
    text = text_of(site / "engine-mlx_lm.html")
    assert "0.9.1 → 0.10.0 6 went, of 19 schedules." in text
    assert "0.10.0 → 0.10.1 2 came, of 19 schedules." in text
    assert "differs at output token 3" in text
    assert "conformance run --engine=mlx_lm --scenario=ragged" in text


def test_a_wrong_case_has_a_page_for_each_release_that_shows_it(site):
    engine = (site / "engine-mlx_lm.html").read_text(encoding="utf-8")
    led = set(re.findall(r'href="(cases/[^"]+)"', engine))
    first = set(re.findall(r'href="(cases/[^"]+)"', (site / "index.html").read_text()))
    there = {f"cases/{path.name}" for path in (site / "cases").iterdir()}
    assert led | first == there
    assert led & first, "the newest release's worst case is on both"
    pages = [text_of(site / path) for path in sorted(led)]
    came = [text for text in pages if "differs at output token 3" in text]
    assert came
    assert all("mlx_lm 0.10.1" in text or "mlx_lm 0.9.1" in text for text in came)
    assert not any("matrix" in text for text in pages)


def test_each_case_that_is_not_expected_has_a_page(tmp_path):
    ids = [f"mlx_lm/llama/{name}/float32/0" for name in ("ragged", "staggered", "window")]
    wrong = [results_by_hand.make_result(one, Verdict.DIVERGED) for one in ids]
    write_status(tmp_path / "site", wrong)
    text = (tmp_path / "site" / "engine-mlx_lm.html").read_text()
    listed = text[text.index('id="unexpected"') : text.index('id="families"')]
    assert [one for one in ids if f">{one}</a>" in listed] == ids
    assert len(set(re.findall(r'href="(cases/[^"]+)"', listed))) == 3
    assert broken_links(tmp_path / "site") == []


def test_a_level_is_repeated_with_the_options_of_its_run(tmp_path):
    run = Invocation("2026-11-22T14:10:28Z", "conformance run", ("--url", "http://x:1"))
    result = results_by_hand.make_result(invocation=run)
    write_status(tmp_path / "site", [result])
    text = text_of(tmp_path / "site" / "engine-mlx_lm.html")
    assert "conformance run --url http://x:1 --engine=mlx_lm --scenario=ragged" in text


def test_each_engine_has_a_badge_on_its_page_and_as_a_file(site):
    file = (site / "badges" / "mlx_lm.svg").read_bytes()
    assert base64.b64encode(file).decode() in (site / "engine-mlx_lm.html").read_text()
    words = [node.text for node in ET.fromstring(file).iter("{http://www.w3.org/2000/svg}text")]
    assert words[0] == "mlx_lm 0.10.1"
    assert (
        " ".join(words[1:])
        == "conforms at alone, late join, quantized; in most families at together"
    )
    assert json.loads((site / "badges" / "mlx_lm.json").read_text())["color"] == "red"


def test_hostile_names_are_text_and_stay_in_the_folder(tmp_path):
    hostile = results_by_hand.hostile()
    write_status(tmp_path / "site", hostile.results)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]
    for path in (tmp_path / "site").rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "<script>window" not in text
        assert "<img src=x" not in text
    assert broken_links(tmp_path / "site") == []
    assert engine_href("../x").count("/") == 0
    assert badge_stem("../x").count("/") == 1
    assert engine_href("A") != engine_href("a"), "file systems may not know the difference"
