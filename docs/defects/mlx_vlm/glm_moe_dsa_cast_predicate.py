"""glm_moe_dsa cannot be converted to another dtype: it calls a property.

mlx_vlm/models/glm_moe_dsa/language.py:357 calls ``DSV32Model.cast_predicate(self)``, which is a
property there (deepseek_v32/language.py:586), so mlx_vlm/convert.py:318 raises for every model of
this family that is given a dtype. Fixed by ``DSV32Model.cast_predicate.fget(self)``, as
deepseek_v32/language.py:625 has it.
"""

import sys
from importlib.metadata import version

from mlx_vlm.models.deepseek_v32.language import Model as DSV32Model
from mlx_vlm.models.glm_moe_dsa.language import LanguageModel


class Bare(LanguageModel):
    def __init__(self):
        """Weights play no part in which parameters may be cast."""


def main() -> int:
    print(f"mlx-vlm {version('mlx-vlm')}, glm_moe_dsa: may 'lm_head.weight' be cast?")
    want = DSV32Model.cast_predicate.fget(Bare())("lm_head.weight")
    try:
        got = Bare().cast_predicate("lm_head.weight")
    except TypeError as error:
        print(f"expected {want}, as deepseek_v32 says, got TypeError: {error}")
        return 1
    print(f"expected {want}, got {got}")
    return 0 if got == want else 1


if __name__ == "__main__":
    sys.exit(main())
