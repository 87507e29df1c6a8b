"""What the checks are worth: defects put in that they must tell, right runs that they must pass."""
