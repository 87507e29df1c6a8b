"""400 families and 30 scenarios: soon there, and smooth.

Times are of a machine that does nothing else: what a page took is divided by how much longer than
its own work a loop took just then.
"""

import time

READY_SECONDS_MAX = 2.0
WORK_SECONDS_MAX = 1.5  # of the page's main thread, whatever else runs
FILTER_SECONDS_MAX = 0.5
TRIES = 4

FRAME = """() => new Promise((done) => {
  requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
})"""
FILTERED = """() => {
  const start = performance.now();
  filters.elements.q.value = "family_1";
  apply();
  document.body.offsetHeight;
  return performance.now() - start;
}"""


def slowdown(seconds=0.1):
    """How many times longer than its own work a loop takes; 1 where nothing else runs."""
    wall, own = time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < seconds:
        sum(range(1000))
    return max(1.0, (time.perf_counter() - wall) / max(time.process_time() - own, 0.001))


def opened(page, address):
    """Seconds until the matrix is drawn and answers, and the main thread's work in it."""
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = slowdown()
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    wall = page.evaluate(FRAME) / 1000
    measured = {m["name"]: m["value"] for m in metrics.send("Performance.getMetrics")["metrics"]}
    return wall / max(1.0, min(before, slowdown())), measured["TaskDuration"]


def test_the_large_matrix_is_interactive_within_two_seconds(new_page, large, picture):
    found = []
    while not found or (min(found)[0] >= READY_SECONDS_MAX and len(found) < TRIES):
        page = new_page(1400, 900)
        found.append(opened(page, f"{large}/matrix.html"))
    assert page.locator("#matrix tbody td").count() == 400 * (30 + 3)
    picture(page, "matrix-400x30")
    print("interactive after, of which work:", *(f"{a:.2f} s, {b:.2f} s" for a, b in found))
    assert min(found)[0] < READY_SECONDS_MAX
    assert min(work for _, work in found) < WORK_SECONDS_MAX


def test_a_filter_answers_at_once(page, large):
    page.goto(f"{large}/matrix.html")
    page.wait_for_selector("html[data-ready]")
    times = [page.evaluate(FILTERED) / 1000 / slowdown() for _ in range(TRIES)]
    assert page.locator("#matrix tbody tr:not([hidden])").count() == 100
    assert min(times) < FILTER_SECONDS_MAX
