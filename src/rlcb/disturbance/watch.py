"""A measurement by this process and its children, watched for disturbances while it runs."""

import psutil

from rlcb.disturbance.meter import DisturbanceMeter
from rlcb.disturbance.verdict import Disturbance, Sums


class Watch:
    """Looks when it is told to: first when the measurement begins, last while all its processes still are there."""

    def __init__(self, meter: DisturbanceMeter | None = None) -> None:
        self._meter, self._sums = meter or DisturbanceMeter(), Sums()

    def look(self) -> None:
        """Take in what happened since the last look."""
        process = psutil.Process()
        tree = [process, *process.children(recursive=True)]
        self._sums.add(self._meter.look([one.pid for one in tree], at_once=True))

    def verdict(self) -> Disturbance:
        """What happened between the first look and the last."""
        return self._sums.verdict()
