"""Real checkpoints: what is in a folder, whether it fits here, what is kept of its oracle."""
