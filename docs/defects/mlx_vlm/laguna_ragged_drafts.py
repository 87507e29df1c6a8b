"""laguna: a batch whose rows accept different numbers of drafted tokens raises.

LanguageModel.rollback_speculative_cache (mlx_vlm/models/laguna/language.py:519) refuses unequal
counts and says that ``requires_uniform_batch_acceptance`` must be set on the drafter or the target,
by which the rounds take the least count for all rows. Neither laguna's model nor its drafter
(mlx_vlm/speculative/drafters/laguna_dflash) sets it, as gemma4, nemotron_h and qwen3_5 do.
Fixed by setting it.
"""

import sys
from importlib.metadata import version

from mlx_vlm.models.gemma4.language import LanguageModel as Gemma4
from mlx_vlm.models.laguna.language import LanguageModel as Laguna
from mlx_vlm.speculative.drafters import laguna_dflash

FLAG = "requires_uniform_batch_acceptance"


def main() -> int:
    drafters = [c for c in vars(laguna_dflash).values() if isinstance(c, type)]
    print(f"mlx-vlm {version('mlx-vlm')}: {FLAG}")
    print(f"gemma4: {getattr(Gemma4, FLAG, False)}")
    print(f"laguna: {getattr(Laguna, FLAG, False)}")
    print(f"its drafter: {any(getattr(c, FLAG, False) for c in drafters)}")
    is_set = getattr(Laguna, FLAG, False) or any(getattr(c, FLAG, False) for c in drafters)
    try:
        Laguna.rollback_speculative_cache(None, [], None, [3, 0], 4)
        outcome = "rolled back"
    except RuntimeError as error:
        outcome = f"RuntimeError: {error}"
    print(f"rows that accept 3 and 0 tokens: {outcome}")
    print("expected: the flag set, or unequal counts taken")
    return 1 if outcome != "rolled back" and not is_set else 0


if __name__ == "__main__":
    sys.exit(main())
