"""Memory that several processes have mapped, and the order in which they see each other's writes to it.

The lock-free files of this package (`process_group`, `versioned_weights`, `rollout_slots`) write data, then a word that
says that it is there; readers look at the word, then at the data. That needs stores to become visible in the order in
which they were made, and loads to be done in program order. x86-64 guarantees both (total store order), so `fence` does
nothing there. ARM and others do not: `fence` then performs a release and an acquire operation, which order all earlier
accesses before all later ones.
"""

import mmap
import os
import platform
import threading

_STRONG = platform.machine() in ("x86_64", "AMD64")
_semaphore, _between = threading.Lock(), threading.Lock()
_semaphore.acquire()


def mapped(descriptor: int, length: int) -> mmap.mmap:
    """Map the first bytes of a file, which grows to that length: the same for every process, whichever comes first."""
    if os.fstat(descriptor).st_size < length:
        os.ftruncate(descriptor, length)
    return mmap.mmap(descriptor, length)


def fence() -> None:
    """Order all earlier accesses before all later ones: a store with release order, then a load with acquire order."""
    if not _STRONG:
        with _between:  # two threads of one process must not both release
            _semaphore.release()
            _semaphore.acquire()
