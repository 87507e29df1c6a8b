"""The file that stands for all cases; ``conformance.app.pytest_plugin`` collects them from it.

One case alone: ``pytest --pyargs conformance.suite.cases::mlx_lm/llama/ragged/float32/0``.
"""
