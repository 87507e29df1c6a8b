"""How each kind of cache is made, fed and read."""
