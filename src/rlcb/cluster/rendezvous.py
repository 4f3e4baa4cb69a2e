"""Where the ranks of a gloo group find each other: the key-value store that every Ray cluster has."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get, _internal_kv_put
from torch.distributed.distributed_c10d import Store

NAMESPACE = b"rlcb"
_LOOK_EVERY = 0.01  # seconds
_PATIENCE = timedelta(seconds=300)


class ClusterStore(Store):
    """torch's rendezvous over Ray's store, so that no port has to be opened for it.

    Ray's store cannot add. A counter is a key for each rank with what it has added, so ranks never write the same one.
    """

    def __init__(self, prefix: str, rank: int, size: int, check: Callable[[], None]):
        """`check`: called while waiting for other ranks; raises when the group is given up."""
        super().__init__()
        self._check = check
        self._prefix, self._rank, self._size = prefix, rank, size
        self._added: dict[str, int] = {}

    def _key(self, key: str) -> bytes:
        return f"{self._prefix}/{key}".encode()

    def set(self, key: str, value: Any) -> None:
        """Make this the key's value."""
        data = value.encode() if isinstance(value, str) else bytes(value)
        _internal_kv_put(self._key(key), data, overwrite=True, namespace=NAMESPACE)

    def get(self, key: str) -> bytes:
        """The key's value, as soon as a rank has set it."""
        self.wait([key], _PATIENCE)
        value: bytes = self._look(key)
        return value

    def add(self, key: str, amount: int) -> int:
        """Add to a counter; returns what all have added so far."""
        if amount:
            self._added[key] = self._added.get(key, 0) + amount
            self.set(f"{key}/of/{self._rank}", str(self._added[key]))
        parts = (self._look(f"{key}/of/{rank}") for rank in range(self._size))
        return sum(int(part) for part in parts if part)

    def check(self, keys: list[str]) -> bool:
        """Whether all of the keys have been set."""
        return all(self._look(key) is not None for key in keys)

    def wait(self, keys: list[str], timeout: timedelta = _PATIENCE) -> None:
        """Wait until all of the keys have been set."""
        deadline = time.monotonic() + timeout.total_seconds()
        while not self.check(keys):
            if time.monotonic() > deadline:
                raise RuntimeError(f"no rank has set {', '.join(keys)} in {timeout.total_seconds():g} s")
            self._check()
            time.sleep(_LOOK_EVERY)

    def delete_key(self, key: str) -> bool:
        """Forget a key; returns whether it was there."""
        return bool(_internal_kv_del(self._key(key), namespace=NAMESPACE))

    def _look(self, key: str) -> Any:
        return _internal_kv_get(self._key(key), namespace=NAMESPACE)


def forget(prefix: str) -> None:
    """Remove every key that begins like this."""
    _internal_kv_del(prefix.encode(), del_by_prefix=True, namespace=NAMESPACE)
