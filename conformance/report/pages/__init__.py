"""Results as a folder of pages that open from disk. Made from data only; nothing is run."""
