import os

import pytest


class Harm:
    """An object whose pickle makes a folder when it is loaded."""

    name = f'{os.name}.mkdir'

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def harm(tmp_path):
    return Harm(tmp_path / 'executed')
