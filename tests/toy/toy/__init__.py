"""The library of ``mutants_plugin.py``."""
