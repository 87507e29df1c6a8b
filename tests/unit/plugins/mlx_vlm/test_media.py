"""Media are drawn from their description, and from nothing else."""

import numpy as np
import pytest

from conformance.core.errors import ScheduleError
from conformance.core.schedule import Media
from conformance.plugins.mlx_vlm.media import draw


def test_shapes_are_those_of_the_description():
    assert draw(Media("image", (6, 4))).size == (6, 4)
    assert draw(Media("video", (3, 6, 4))).shape == (3, 4, 6, 3)
    audio = draw(Media("audio", (400,)))
    assert audio.shape == (400,)
    assert audio.dtype == np.float32
    assert 0.1 < np.abs(audio).max() <= 1


@pytest.mark.parametrize("kind", ["image", "video", "audio"])
def test_equal_descriptions_give_equal_media_and_other_contents_others(kind):
    size = {"image": (6, 4), "video": (2, 6, 4), "audio": (40,)}[kind]
    one, again = (np.asarray(draw(Media(kind, size))) for _ in range(2))
    other = np.asarray(draw(Media(kind, size, content=1)))
    placed = np.asarray(draw(Media(kind, size, span=(3, 9))))
    assert np.array_equal(one, again)
    assert np.array_equal(one, placed)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    "media", [Media("smell", (1,)), Media("image", (4,)), Media("video", (0, 4, 4))]
)
def test_what_cannot_be_drawn_is_refused(media):
    with pytest.raises(ScheduleError, match=media.kind):
        draw(media)
