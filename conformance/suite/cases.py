"""The file that stands for all cases; ``conformance.app.pytest_plugin`` collects them from it.

A single case: ``pytest --pyargs conformance.suite.cases::mlx_lm/llama/ragged/float32/0``.
"""
