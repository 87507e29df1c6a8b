"""What we ask of mlx itself, for any library built on it: metering, perturbation, memory, device."""
