"""A model that answers every prompt alike proves nothing, whatever its engine does."""

import numpy as np
import pytest
from miniatures.library import ToyLibrary, family
from miniatures.model import ToyModel
from miniatures.right import ContinuousBatching
from miniatures.sessions import toy_session

from conformance.core.schedule import Media, Request
from conformance.core.verdict import CaseId, Verdict
from conformance.run.judging.discerning import in_other_context, needed


class Constant(ToyModel):
    """Has logits that no input changes."""

    def __call__(self, rows, **more):
        logits = super().__call__(rows, **more)
        return np.broadcast_to(np.arange(logits.shape[1], dtype=np.float32), logits.shape)


class Faint(ToyModel):
    """Has logits so small that rounding is as large."""

    def __call__(self, rows, **more):
        return super().__call__(rows, **more) * np.float32(1e-6)


class LastTokenOnly(ToyModel):
    """Sees nothing of what came before the last token."""

    def __call__(self, rows, *, offsets=None, **more):
        return super().__call__([row[-1:] for row in rows], offsets=[1] * len(rows), **more)


def played(model, scenario, engine=ContinuousBatching):
    class Library(ToyLibrary):
        def load(self, family, *, dtype, seed):
            return model()

    session = toy_session({"engine": engine}, library=Library(), families=[family()])
    return session.run(CaseId("engine", "toy", scenario, "float32", 0))


@pytest.mark.parametrize("scenario", ["repeat", "rechunked", "ragged", "staggered", "cancelled"])
@pytest.mark.parametrize("model", [Constant, Faint, LastTokenOnly])
def test_a_model_that_distinguishes_no_prompts_is_vacuous_in_every_case(model, scenario):
    result = played(model, scenario)
    assert (result.verdict, result.expected) == (Verdict.VACUOUS, False)
    (finding,) = [found for found in result.evidence if found.check == "sensitivity"]
    assert finding.ratio < needed("float32")
    assert f"{finding.ratio:.3g} times the noise" in finding.what
    assert finding.what.startswith("measured sensitivity: another prompt moves")


def test_another_context_leaves_media_and_the_last_token():
    asked = Request("a", (7, 9, 9, 8, 1), 3, media=(Media("image", (1, 2), 0, (1, 3)),))
    assert in_other_context(asked, (1, 9)).prompt == (8, 9, 9, 1, 1)
