"""The order in which other processes see this one's writes to shared memory, on processors that reorder them.

The lock-free files of this package (`process_group`, `versioned_weights`, `rollout_slots`) write data, then a word that
says that it is there; readers look at the word, then at the data. That needs stores to become visible in the order in
which they were made, and loads to be done in program order. x86-64 guarantees both (total store order), so `fence` does
nothing there. ARM and others do not: `fence` then performs a release and an acquire operation, which order all earlier
accesses before all later ones.
"""

import platform
import threading

_STRONG = platform.machine() in ("x86_64", "AMD64")
_semaphore = threading.Lock()
_semaphore.acquire()


def _release_and_acquire() -> None:
    """Unlock and lock: a store with release order followed by a load with acquire order."""
    with _between:
        _semaphore.release()
        _semaphore.acquire()


_between = threading.Lock()  # two threads of one process must not both release


def _nothing() -> None:
    """x86-64 keeps this order by itself."""


fence = _nothing if _STRONG else _release_and_acquire
