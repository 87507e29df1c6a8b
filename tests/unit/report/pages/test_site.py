"""All pages of a report together."""

import dataclasses
import json

import msgspec
import pytest
import results_by_hand
from html_links import Page, broken_links
from html_pictures import make_explanation
from results_by_hand import make_finding, make_result

from conformance.core.contracts import Cost
from conformance.core.inventory import Inventory
from conformance.core.verdict import ScheduleResult, Verdict
from conformance.report.pages.environment import case_href
from conformance.report.pages.material import Material, read_explanations
from conformance.report.pages.site import write_site


@pytest.fixture
def everything(tmp_path):
    """A report that has every page."""
    write_site(tmp_path / "report", results_by_hand.everything())
    return tmp_path / "report"


def test_every_page_is_there_and_says_of_what(everything):
    pages = sorted(path.name for path in everything.glob("*.html"))
    assert pages == [
        "comparison.html",
        "defects.html",
        "faults.html",
        "index.html",
        "matrix.html",
    ]
    assert len(list((everything / "cases").iterdir())) == 4
    about = json.loads((everything / "report.json").read_text())
    assert (about["cases"], about["unexpected"]) == (28, 2)


def test_every_link_leads_somewhere(everything):
    assert broken_links(everything) == []


def test_a_broken_link_would_be_reported(everything):
    (everything / "defects.html").unlink()
    page = everything / "index.html"
    page.write_text(page.read_text() + '<a href="#nowhere">x</a>')
    assert "index.html: defects.html" in broken_links(everything)
    assert "index.html: #nowhere" in broken_links(everything)


def test_nothing_is_fetched_from_elsewhere(everything):
    for path in everything.rglob("*.html"):
        page = Page(path.read_text(encoding="utf-8"))
        assert not [link for link in page.links if "//" in link], path
    for path in (everything / "assets").iterdir():
        assert "//" not in path.read_text().replace("// ", ""), path


def test_no_id_is_given_twice(everything):
    for path in everything.rglob("*.html"):
        ids = Page(path.read_text(encoding="utf-8")).ids
        assert len(ids) == len(set(ids)), path


def test_what_was_not_given_has_no_page(tmp_path):
    count = write_site(tmp_path / "r", Material(results_by_hand.few(), results_by_hand.inventory()))
    assert sorted(path.name for path in (tmp_path / "r").glob("*.html")) == [
        "index.html",
        "matrix.html",
    ]
    assert count == 2 + 4
    assert broken_links(tmp_path / "r") == []


def test_what_explains_a_case_is_kept_for_other_output(tmp_path):
    material = results_by_hand.everything()
    explanation = make_explanation()
    write_site(
        tmp_path / "a",
        dataclasses.replace(material, explanations={explanation.case: explanation}),
    )
    assert read_explanations(tmp_path / "a" / "explained") == {explanation.case: explanation}
    write_site(tmp_path / "b", material)
    assert not (tmp_path / "b" / "explained").exists()


# The page of costs leads to the cases that have the counts ---------------------------------------


def counted(engine, count, verdict):
    cost = Cost("positions", count, 1.25)
    schedule = ScheduleResult("twentieth", verdict, costs=(cost,))
    return make_result(f"{engine}/llama/cost_positions/float32/0", verdict, schedules=(schedule,))


KEPT = counted("mlx_lm", 1.2, Verdict.EXACT)
BROKEN = counted("mlx_vlm", 1.98, Verdict.COST)


def test_a_count_leads_to_its_case(tmp_path):
    write_site(tmp_path / "site", Material((KEPT, BROKEN), Inventory(("cost_positions",))))
    page = (tmp_path / "site" / "costs.html").read_text(encoding="utf-8")
    assert (
        f'<td class="bad"><a href="{case_href(BROKEN.case)}" title="llama, twentieth">1.98</a>'
        in page
    )
    assert "matrix.html#case=mlx_lm" in page
    assert ">1.2</a>" in page
    assert "not counted" in page
    assert "Costs" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")


# The table of servers leads to the cases that decide it, and each server has a page --------------

RIGHT = msgspec.structs.replace(
    make_result("a_server/llama/served_ends/float32/0"),
    schedules=(ScheduleResult("short_beside_long", Verdict.EXACT),),
)
WRONG = msgspec.structs.replace(
    make_result("b_server/llama/served_ends/float32/0", Verdict.DIVERGED),
    schedules=(ScheduleResult("short_beside_long", Verdict.DIVERGED),),
    evidence=(
        msgspec.structs.replace(
            make_finding(Verdict.DIVERGED), schedule="short_beside_long", what="token <b>5</b>"
        ),
    ),
)


def test_pages_of_servers(tmp_path):
    write_site(tmp_path / "site", Material((RIGHT, WRONG), Inventory(("served_ends",))))
    table = (tmp_path / "site" / "servers.html").read_text(encoding="utf-8")
    assert 'href="server-a_server.html"' in table
    assert f'<a href="{case_href(WRONG.case)}">no</a>' in table
    assert "matrix.html#case=a_server" in table
    own = (tmp_path / "site" / "server-b_server.html").read_text(encoding="utf-8")
    assert "token &lt;b&gt;5&lt;/b&gt;" in own
    assert "Servers" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")


def test_without_servers_there_is_no_such_page(tmp_path):
    write_site(tmp_path / "site", Material((make_result(),), Inventory(("ragged",))))
    assert not (tmp_path / "site" / "servers.html").exists()
