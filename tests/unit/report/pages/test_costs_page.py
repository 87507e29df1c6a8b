"""The page of costs leads to the cases that have the counts."""

from results_by_hand import make_result

from conformance.core.contracts import Cost
from conformance.core.inventory import Inventory
from conformance.core.verdict import ScheduleResult, Verdict
from conformance.report.pages.environment import case_href
from conformance.report.pages.material import Material
from conformance.report.pages.site import write_site


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


def test_where_nothing_was_counted_there_is_no_such_page(tmp_path):
    write_site(tmp_path / "site", Material((make_result(),), Inventory(("ragged",))))
    assert not (tmp_path / "site" / "costs.html").exists()
