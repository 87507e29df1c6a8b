"""Writes a package with an engine of your own, which works as it is written.

Its files are the templates next to this module.
"""

from conformance.tools.new_engine.engine_package import files_of, write_package

__all__ = ["files_of", "write_package"]
