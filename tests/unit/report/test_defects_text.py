"""The known defects as text."""

import dataclasses
import json
from dataclasses import replace

from defects_by_hand import entry, known

from conformance.core.known_defect import MODEL, IssueScript
from conformance.core.verdict import Verdict
from conformance.report.defects_text import (
    as_dict,
    defect_text,
    issue_brief,
    list_text,
    reach,
    title_of,
)

SAYS = "mamba forgets its prompt."


def test_the_list_has_each_with_its_kind_its_reach_and_what_a_user_suffers():
    crash = entry("crash", 2, families=("*",), served=False, verdicts={"ragged": Verdict.CRASH})
    defects = known(entry(suffers=SAYS), crash)
    assert list_text(defects, {"mlx-lm": "0.32.2"}, width=70).splitlines() == [
        "2 known upstream defects of mlx-lm 0.32.2, those of most reach first",
        "",
        "  1 lost-state: wrong tokens in mamba of mlx-lm",
        f"    {SAYS}",
        "",
        "  2 crash: a crash or a hang in 3 families of mlx-lm, not on its",
        "    server",
        "    3 families give an error or no answer; seen with: prompts of",
        "    unequal length.",
        "",
        "Each in full: conformance show defects ID",
    ]


def test_an_issue_has_facts_alone_in_the_order_of_a_report():
    (one,) = known(entry(suffers=SAYS))
    script = IssueScript("import sys\nsys.exit(1)\n", "mlx-lm 0.32.2", "one, two")
    title, release, code, prints, output, cause, right = issue_brief(one, script).split("\n\n")
    assert title == f"# {SAYS.rstrip('.')}"
    assert release == f"mlx-lm 0.32.2; releases with it: `{one.versions}`."
    assert code == "```python\nimport sys\nsys.exit(1)\n```"
    assert prints == "It exits with 1 as long as this is so. It prints:"
    assert output == "```text\none, two\n```"
    assert cause == f"**Cause** (`{one.where[0]}`): {one.why}"
    assert right == ("**Right would be**: " + one.mend if one.mend else "No repair was tried.")
    served = dataclasses.replace(script, script="# python -m mlx_vlm.server --model MODEL\n")
    assert f"It prints, of a server with {MODEL}:" in issue_brief(one, served)


def test_one_in_full_has_everything_and_how_to_show_it():
    behind = entry("behind", why="As lost-state.", verdicts={"staggered": Verdict.LEAK})
    (one,) = known(entry(suffers=SAYS), behind)
    assert defect_text(one, "lost-state", width=100).splitlines() == [
        "lost-state: wrong tokens",
        f"  suffers:    {SAYS}",
        "  families:   mamba",
        "  releases:   mlx-lm >=0.32.0,<=0.32.2",
        "  server:     meets it",
        "  scenarios:  ragged, staggered",
        f"  where:      {one.where[0]}",
        "  cause:      The state is taken at the padded end. The row ends before it.",
        "  needs:      no schedule of its own is stored",
        "  script:     conformance repro lost-state",
        "  mend:       The state is the row's own.",
        "  issue:      conformance repro lost-state --issue",
        "  entries:    also behind",
    ]
    assert defect_text(one, "behind", width=100).startswith("behind is a part of lost-state: ")


def test_a_script_by_hand_and_a_device_and_no_mend_are_said():
    path = "docs/defects/mlx_lm/x.py"
    (one,) = known(entry("x", script=path, device="gpu (NVIDIA", served=False))
    text = defect_text(one, "x", width=100)
    assert f"  script:     {path} of the repository\n" in text
    assert "  device:     only gpu NVIDIA\n" in text
    assert "  server:     does not meet it\n" in text
    assert "  mend:       none: nothing is seen behind it\n" in text
    assert reach(one) == "in mamba of mlx-lm, not on its server, only on gpu NVIDIA"


def test_many_families_are_counted_and_some_named():
    (one,) = known(entry(families=("*",)))
    assert "  families:   3: gemma, llama, mamba\n" in defect_text(one, one.id, width=100)


def test_as_json_it_has_the_same_in_fields():
    (one,) = known(entry(suffers=SAYS))
    found = json.loads(json.dumps(as_dict(one)))
    assert found["id"] == "lost-state"
    assert found["severity"] == "tokens"
    assert found["suffers"] == SAYS
    assert (found["package"], found["versions"]) == ("mlx-lm", ">=0.32.0,<=0.32.2")
    assert (found["families"], found["scenarios"], found["cases"]) == (["mamba"], ["ragged"], 1)
    assert found["server"] is True
    assert [place.rpartition(":")[0] for place in found["where"]] == ["mlx_lm/models/mamba.py"]
    assert found["cause"] == "The state is taken at the padded end."
    assert (found["repro"], found["script"]) == ("conformance repro lost-state", "")
    assert found["mend"] == "The state is the row's own."
    assert found["entries"] == ["lost-state"]


def test_a_title_has_each_package_with_its_release():
    assert title_of({"a": "1", "b": "2"}) == "a 1 and b 2"


def test_what_its_own_schedules_need_is_said_with_the_command_that_runs_them():
    (one,) = known(entry(suffers=SAYS))
    needs = {"mamba": "2 requests", "jamba": "2 requests", "rwkv": "1 request, media"}
    text = defect_text(replace(one, needs=needs), one.id, width=100)
    assert "  needs:      2 requests (in mamba, jamba); 1 request, media (in rwkv)\n" in text
    assert "  run it:     conformance known lock lost-state\n" in text
    assert as_dict(replace(one, needs=needs))["lock"] == "conformance known lock lost-state"
    assert as_dict(one)["lock"] == ""
