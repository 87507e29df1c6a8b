"""A headless Chromium without a network, and reports for it to open from disk.

Every page that a test opens must load without an error and without asking for anything outside of
its folder. Screenshots go to $CONFORMANCE_SCREENSHOTS, or to build/screenshots.
"""

import importlib.util
import os
from pathlib import Path

import html_pictures
import pytest
import results_by_hand
from playwright.sync_api import sync_playwright

from conformance.report.pages.site import write_site
from conformance.report.pages.status_site import write_status

ROOT = Path(__file__).parents[2]


def _finder():
    spec = importlib.util.spec_from_file_location(
        "chromium", Path(__file__).with_name("chromium.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def browser():
    finder = _finder()
    path = finder.find()
    if path is None:
        pytest.fail(finder.MISSING, pytrace=False)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path)
        yield started
        started.close()


@pytest.fixture
def new_page(browser):
    """Open pages by file name; errors that they meet fail the test at its end."""
    contexts, errors = [], []

    def make(width=1280, height=800, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else 0)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("requestfailed", lambda request: errors.append(f"failed: {request.url}"))
        page.on(
            "request",
            lambda r: None if r.url.startswith(("file:", "data:")) else errors.append(r.url),
        )
        return page

    yield make
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def page(new_page):
    return new_page()


def _written(factory, name, material):
    folder = factory.mktemp(name) / "report"
    write_site(folder, material)
    return folder.as_uri()


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """The address of a small report with every page."""
    return _written(tmp_path_factory, "few", results_by_hand.everything())


@pytest.fixture(scope="session")
def large(tmp_path_factory):
    """Of one with 400 families and 30 scenarios."""
    return _written(tmp_path_factory, "many", results_by_hand.many())


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    """Of one in which every name is hostile."""
    return _written(tmp_path_factory, "hostile", results_by_hand.hostile())


@pytest.fixture(scope="session")
def charted(tmp_path_factory):
    """Of one with every page that has charts."""
    return _written(tmp_path_factory, "charted", html_pictures.charted())


def _written_status(factory, results):
    folder = factory.mktemp("status") / "site"
    write_status(folder, results)
    return folder.as_uri()


@pytest.fixture(scope="session")
def status(tmp_path_factory):
    """The address of a small status site, one engine of which has three releases."""
    return _written_status(tmp_path_factory, results_by_hand.over_releases())


@pytest.fixture(scope="session")
def large_status(tmp_path_factory):
    """Of one with 400 families, and a family and a release with long names."""
    results = results_by_hand.many().results
    long = results_by_hand.make_result(f"mlx_lm/{'long_name_' * 6}/ragged/float32/0")
    older = results_by_hand.of_release((*results[::2], long), f"0.31.1.dev{'1' * 30}", "2026-10-01")
    return _written_status(tmp_path_factory, (*older, *results))


@pytest.fixture
def matrix(page, report):
    """Open the small report's matrix, with an address behind #."""

    def open_at(fragment=""):
        page.goto("about:blank")  # else only the part behind # changes, and nothing is loaded
        page.goto(f"{report}/matrix.html#{fragment}")
        page.wait_for_selector("html[data-ready]")
        return page

    return open_at


@pytest.fixture
def picture():
    """Keep a screenshot."""
    folder = Path(os.environ.get("CONFORMANCE_SCREENSHOTS") or ROOT / "build" / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)

    def keep(page, name, **options):
        page.screenshot(path=folder / f"{name}.png", **options)

    return keep
