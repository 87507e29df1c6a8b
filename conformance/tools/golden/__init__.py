"""Goldens: each family's single-stream output, as files that maintainers review.

The oracle that computes the output belongs to ``reference/``.
"""
