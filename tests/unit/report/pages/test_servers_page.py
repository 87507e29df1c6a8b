"""The table of servers leads to the cases that decide it, and each server has a page."""

import msgspec
from results_by_hand import make_finding, make_result

from conformance.core.inventory import Inventory
from conformance.core.verdict import ScheduleResult, Verdict
from conformance.report.pages.environment import case_href
from conformance.report.pages.material import Material
from conformance.report.pages.site import write_site

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
