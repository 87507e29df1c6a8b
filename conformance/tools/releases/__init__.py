"""Runs the ladder against several releases of a library and says when each defect came and went."""
