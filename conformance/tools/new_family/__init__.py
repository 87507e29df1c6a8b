"""Makes a family of a full-size model: reads its config, shrinks it, proves it, writes it."""
