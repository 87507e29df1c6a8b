"""What a library's plugin says where it has nothing to say."""

import pytest
from miniatures.library import ToyLibrary

from conformance.core.errors import Unsupported


def test_a_plugin_that_describes_no_models_says_so():
    with pytest.raises(Unsupported, match="the plugin of library toy describes no models"):
        ToyLibrary().describe(None)
