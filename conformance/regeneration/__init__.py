"""Goldens made anew: staged from the oracle, shown as a difference, then accepted or not."""
