"""Every selected family's golden: one test each, and one for the folder as a whole.

A single golden: ``pytest --pyargs 'conformance.suite.goldens::golden[mlx_lm/llama]'``.
``--snapshot-update`` writes those that changed, through the gate of ``conformance golden update``.
"""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from conformance.app.pytest_plugin.golden_items import PARAMETER, GoldenExtension, folder_of, wanted
from conformance.app.pytest_plugin.setup import find_setup
from conformance.tools.golden.checking import Checked, check, folder_problems
from conformance.tools.golden.format import load_without
from conformance.tools.golden.staging import Proposal, propose


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Library and family of each selected golden."""
    if PARAMETER in metafunc.fixturenames:
        names = wanted(metafunc.config)
        metafunc.parametrize(PARAMETER, names, ids=["/".join(pair) for pair in names])


def golden(
    golden_names: tuple[str, str], request: pytest.FixtureRequest, snapshot: SnapshotAssertion
) -> None:
    """Single stream, batches and golden agree; when updating, what differs is staged anew."""
    value = _value(golden_names, request.config)
    if isinstance(value, Proposal) and value.refused:
        pytest.fail(value.refused, pytrace=False)
    if isinstance(value, Checked) and value.not_playable:
        pytest.skip(value.not_playable)
    stored = snapshot.with_defaults(extension_class=GoldenExtension)
    if stored != value:
        library, family = golden_names
        rerun = f"rerun: conformance golden check --engine '{library}*' --family {family}"
        pytest.fail("\n".join([*value.lines(), rerun]), pytrace=False)
    if isinstance(value, Checked):
        for known in value.known:
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


def _value(names: tuple[str, str], config: pytest.Config) -> Checked | Proposal:
    """What ``golden update`` would write if it may be written, else what ``golden check`` finds."""
    setup = find_setup(config)
    registry, root = setup.registry, folder_of(config)
    pair = (registry.libraries[names[0]], registry.families[names])
    if _updating(config):
        return propose(pair, root=root, expectations=setup.expectations)
    return check(
        pair,
        root=root,
        engines=[registry.engines[name] for name in setup.engines],
        files_only=False,
        expectations=setup.expectations,
    )


def _updating(config: pytest.Config) -> bool:
    return bool(config.option.update_snapshots or config.option.update_new_snapshots_only)
