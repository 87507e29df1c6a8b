"""Goldens: what each family's single stream gave, as files that maintainers review."""
