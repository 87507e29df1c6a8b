"""The page of the known defects, and what links to it."""

import html
import re

from defects_by_hand import entry, known
from results_by_hand import make_finding, make_result

from conformance.core.inventory import Inventory
from conformance.core.verdict import Verdict
from conformance.report.pages.defects_page import defects_shown, render_defects
from conformance.report.pages.environment import Renderer, case_href
from conformance.report.pages.material import Material
from conformance.report.pages.site import write_site

CASE = "mlx_lm/mamba/ragged/float32/0"
BEHIND = "mlx_lm/mamba/held/float32/0"
SUFFERS = "mamba <forgets> its prompt."
DEFECTS = known(
    entry(suffers=SUFFERS),
    entry("behind", why="As lost-state.", verdicts={"staggered": Verdict.LEAK}),
    entry("unseen", 2),
)


def wrong(case, name, **changes):
    finding = make_finding(Verdict.DIVERGED, known=name)
    return make_result(case, Verdict.DIVERGED, known=name, evidence=(finding,), **changes)


RESULTS = (
    wrong(CASE, "lost-state"),
    wrong(BEHIND, "lost-state, behind"),
    make_result("mlx_lm/llama/ragged/float32/0"),
)


def text_of(page):
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_those_that_a_result_names_are_shown_with_the_cases_of_each_entry():
    (shown,) = defects_shown(DEFECTS, RESULTS)
    assert shown.defect.id == "lost-state"
    assert shown.cases == (("lost-state", 2), ("behind", 1))
    assert shown.count == 3


def test_the_page_has_all_that_is_known_of_each():
    page = render_defects(defects_shown(DEFECTS, RESULTS), Renderer())
    said = text_of(page)
    assert '<h2 id="lost-state">' in page
    assert "unseen" not in page
    assert SUFFERS in said
    assert "1 known defect of mlx-lm 0.32.2" in said
    assert "mlx_lm/models/mamba.py:1" in said
    assert "The state is taken at the padded end. The row ends before it." in said
    assert "conformance repro lost-state --issue" in said
    assert "The state is the row's own." in said


def test_case_pages_and_the_overview_link_to_it(tmp_path):
    inventory = Inventory(scenarios=("ragged", "held"))
    write_site(tmp_path / "report", Material(RESULTS, inventory, defects=DEFECTS))
    link = "defects.html#lost-state"
    case = (tmp_path / "report" / case_href(BEHIND)).read_text(encoding="utf-8")
    assert case.count(f'<a href="../{link}">lost-state</a>') == 2
    assert case.count(f'<a href="../{link}">behind</a>') == 2
    overview = (tmp_path / "report/index.html").read_text(encoding="utf-8")
    assert f'<a href="{link}">lost-state</a>: {html.escape(SUFFERS)}' in overview
    assert '<a href="defects.html">Defects</a>' in overview
    assert 'id="lost-state"' in (tmp_path / "report/defects.html").read_text(encoding="utf-8")


def test_without_the_defects_a_case_page_links_to_the_cases_with_the_same_one(tmp_path):
    write_site(tmp_path / "report", Material(RESULTS, Inventory()))
    case = (tmp_path / "report" / case_href(CASE)).read_text(encoding="utf-8")
    assert '<a href="../matrix.html#q=lost-state">lost-state</a>' in case
    assert not (tmp_path / "report/defects.html").exists()
