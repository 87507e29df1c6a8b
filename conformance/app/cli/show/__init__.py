"""``conformance show``: what is installed, and the whole evidence of one case."""
