"""What tests on a cluster share."""

import pytest

from helpers.cluster_runs import Begin
from helpers.clusters import SETTINGS


@pytest.fixture
def begin(start: Begin, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Start a command that knows the cluster's token."""
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    return start
