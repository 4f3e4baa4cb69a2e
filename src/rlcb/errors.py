"""Every failure a user can meet: one line of text and an exit code."""


class RlcbError(Exception):
    """An expected failure: printed as one line, without a traceback."""

    exit_code = 1


class UsageError(RlcbError):
    """A wrong flag, config value or name, found before any work started."""

    exit_code = 2


class NotPermitted(UsageError):
    """A file names a module of the user's own that the command line does not name."""


class Diverged(RlcbError):
    """Training produced numbers that are not finite and cannot continue."""

    exit_code = 3


class WorkersLost(RlcbError):
    """Worker processes died more often than they are replaced."""

    exit_code = 4


class CheckpointUnusable(RlcbError):
    """A checkpoint is missing, damaged, foreign or of another run."""

    exit_code = 5


class ResourceError(RlcbError):
    """Disk, memory or permissions do not suffice."""

    exit_code = 6


class GpuFailed(ResourceError):
    """The GPU reported an error or is lost: nothing can be read from it any more."""


class OwnCodeFailed(RlcbError):
    """An environment or a network that is not part of this program raised an exception during a run."""

    exit_code = 7

    def __init__(self, line: str, kind: str = "environment", traceback: str = ""):
        """`kind`: environment or network; `traceback`: of the exception, as text: it may come from another process."""
        super().__init__(line)
        self.kind, self.traceback = kind, traceback


class RlcbWarning(UserWarning):
    """Something that did not stop the program, where it is not printed as a line."""
