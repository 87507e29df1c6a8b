"""From schedules to an outcome: played, checked, and seen to have reached what they are for."""
