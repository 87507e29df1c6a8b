"""What decides what is right. The oracles share no code with any engine."""
