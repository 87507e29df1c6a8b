"""What we ask of mlx itself, for any library built on it: calls, noise, memory, device."""
