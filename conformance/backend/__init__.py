"""What we ask of mlx itself, for any library built on it: calls, noise, memory, device."""

import os

# A GPU multiplies float32 matrices with 10 bits of mantissa if it is let: the noise is then that of
# float16, and float32 tells defects from rounding no better. mlx asks once, at the first product.
os.environ.setdefault("MLX_ENABLE_TF32", "0")
