"""What kills each fault is a table between the marks of a Markdown file."""

from conformance.report.fault_table import BEGIN, END, with_faults
from conformance.report.trials import Kill, Outcome, Trial


def trial(fault, outcome=Outcome.KILLED, engine="one_server", **more):
    kills = (Kill("served_alone", "protocol", ("claims", "free")),)
    made = {"kills": kills if outcome is Outcome.KILLED else (), **more}
    return Trial(fault, "server answers", engine, "llama", "float32", 0, outcome, **made)


def test_each_fault_has_a_row_and_each_engine_a_column():
    trials = [
        trial("S10.late"),
        trial("S2.early", Outcome.SURVIVED),
        trial("S2.early", engine="other_server"),
        trial("S10.late", Outcome.NOT_APPLICABLE, engine="other_server"),
    ]
    text = with_faults(f"# Faults\n\n{BEGIN}\nold\n{END}\n\nend\n", trials)
    assert text.startswith(f"# Faults\n\n{BEGIN}\n\n|")
    assert text.endswith(f"2 of 3 killed.\n\n{END}\n\nend\n")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `S")]
    assert rows == [
        ["| `S2.early`", "survived", "`served_alone`: claims, free |"],
        ["| `S10.late`", "`served_alone`: claims, free", "not applicable |"],
    ]
    assert with_faults(text, trials) == text


def test_without_marks_it_is_the_table_alone():
    assert with_faults("# Faults\n", [trial("S1.x", Outcome.HIDDEN, why="it is wrong")]) == (
        "|  | `one_server/llama/float32` |\n|---|---|\n| `S1.x` | hidden: it is wrong |\n"
        "\n0 of 1 killed.\n"
    )
