"""Every selected family's golden: one test each, and one for the folder as a whole.

A single golden: ``pytest --pyargs 'conformance.suite.goldens::golden[mlx_lm/llama]'``.
``--snapshot-update`` writes those that changed, through the gate of ``conformance golden update``.
"""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from conformance.app.pytest_plugin.golden_items import PARAMETER, folder_of, wanted
from conformance.app.pytest_plugin.goldens import GoldenExtension, Observed
from conformance.app.pytest_plugin.setup import find_setup
from conformance.core.errors import ConformanceError
from conformance.core.verdict import CaseId
from conformance.tools.golden.checking import folder_problems
from conformance.tools.golden.exemptions import load_without
from conformance.tools.golden.format import load_golden
from conformance.tools.golden.layout import golden_path
from conformance.tools.golden.recipe import DTYPE, SEED
from conformance.tools.golden.staging import Staged, stage, with_verified


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Library and family of each selected golden."""
    if PARAMETER in metafunc.fixturenames:
        names = wanted(metafunc.config)
        metafunc.parametrize(PARAMETER, names, ids=["/".join(pair) for pair in names])


def golden(
    golden_names: tuple[str, str], request: pytest.FixtureRequest, snapshot: SnapshotAssertion
) -> None:
    """Single stream, batches and golden agree; when updating, what differs is staged anew."""
    label = "/".join(golden_names)
    stored = snapshot.with_defaults(extension_class=GoldenExtension)
    try:
        value = _value(golden_names, request.config)
    except ConformanceError as error:
        pytest.fail(str(error), pytrace=False)
    if stored != value:
        failed = stored.executions[stored.num_executions - 1].exception
        report = [str(failed)] if failed is not None else stored.get_assert_diff()
        library, family = golden_names
        rerun = f"rerun: conformance golden check --engine '{library}*' --family {family}"
        pytest.fail("\n".join([f"golden {label}:", *report, rerun]), pytrace=False)
    extension = stored.extension
    assert isinstance(extension, GoldenExtension)
    for known in extension.known:
        request.node.user_properties.append(("conformance.known", known))


def folder(request: pytest.FixtureRequest) -> None:
    """No golden without its family, nothing else in the folder."""
    setup = find_setup(request.config)
    root = folder_of(request.config)
    without = load_without(root)
    problems = folder_problems(
        root,
        setup.registry.families,
        setup.libraries,
        without,
        writing=_updating(request.config),
    )
    if found := list(problems):
        pytest.fail("\n".join(found), pytrace=False)


def _value(names: tuple[str, str], config: pytest.Config) -> Staged | Observed:
    """What to compare with the golden: staged anew if it may be written, else observed."""
    setup = find_setup(config)
    library, family = names
    engines = tuple(
        engine
        for name, engine in setup.registry.engines.items()
        if engine.library == library and name in setup.engines
    )
    case = CaseId(engines[0].name, family, "golden", DTYPE, SEED)
    subject = setup.session.subject(case)
    if not _updating(config):
        return Observed(subject, engines, setup.expectations)
    staged = stage(subject, setup.expectations)
    path = golden_path(folder_of(config), library, family)
    try:
        return with_verified(staged, load_golden(path))
    except ConformanceError:
        return staged


def _updating(config: pytest.Config) -> bool:
    return bool(config.option.update_snapshots or config.option.update_new_snapshots_only)
