"""All code that uses mlx itself, for any library built on it: calls, noise, memory, device.

Code for mlx-lm or mlx-vlm is in their plugins; data without mlx is in ``core/``.
"""

import os

# With TF32 a GPU multiplies float32 matrices with 10 bits of mantissa: the noise is then that of
# float16, and defects differ less from rounding. mlx reads this once, at the first product.
os.environ.setdefault("MLX_ENABLE_TF32", "0")
