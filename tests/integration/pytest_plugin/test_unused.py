"""Who does not run the suite does not notice the plugin."""

TEST = "def test_one():\n    assert True\n"


def test_it_loads_nothing_heavy(start):
    done = start(
        *("-u", "-c"),  # an option: in a Python of its own
        "import sys, conformance.app.pytest_plugin\n"
        "heavy = {'mlx', 'numpy', 'rich', 'msgspec', 'click'} & set(sys.modules)\n"
        "ours = sorted(m for m in sys.modules if m.startswith('conformance'))\n"
        "print(heavy, ours)",
        PYTHONPATH="",
    )
    assert done.out.startswith("set() "), done
    assert "conformance.run.registry" not in done.out


def test_a_user_s_own_tests_run_as_ever(start, tmp_path):
    (tmp_path / "test_own.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\nconformance_family = nope\n")
    done = start("-m", "pytest", "-n", "1", "-v", "-p", "no:cacheprovider")
    assert done.code == 0, done
    assert "conformance 0" not in done.out
    assert "= conformance =" not in done.out
    assert "loadgroup" not in done.out.lower()


def test_both_together(suite, tmp_path):
    (tmp_path / "test_own.py").write_text(TEST)
    done = suite("test_own.py", "--conformance-family", "calm", "-n", "2")
    assert done.code == 0, done
    assert "4 passed" in done.out


def test_a_conftest_can_bring_a_family(suite, tmp_path):
    (tmp_path / "conftest.py").write_text(
        "from conformance.core.family import parse_family\n"
        "from conformance.run.hookspecs import hookimpl\n"
        'TEXT = \'{"vocab_size": 16, "conformance": {"library": "toy"}}\'\n'
        "@hookimpl\n"
        "def conformance_families():\n"
        "    return [parse_family(TEXT, name='own')]\n"
    )
    done = suite("--conformance-family", "own", "-n", "1")
    assert "3 passed" in done.out, done
