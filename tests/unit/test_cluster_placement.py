"""Addresses of clusters, and which worker goes to which node."""

from typing import TYPE_CHECKING

import pytest

from rlcb.cluster.address import Address, resolved
from rlcb.cluster.placement import Place, spread, with_gpus
from rlcb.cluster.security import is_loopback
from rlcb.errors import UsageError

if TYPE_CHECKING:
    pass


def test_workers_go_where_the_cores_are() -> None:
    assert spread(4, {"a": 4, "b": 4}, None) == [Place("a", 2)] * 2 + [Place("b", 2)] * 2
    assert spread(5, {"a": 1, "b": 8}, None) == [Place("b", 1)] * 5  # eight cores for four are more than one for one
    assert spread(9, {"a": 1, "b": 8}, None) == [Place("b", 1)] * 8 + [Place("a", 1)]
    assert spread(2, {"a": 16}, 3) == [Place("a", 3)] * 2
    assert spread(3, {"here": 4, "b": 2}, 1, last={"here"}) == [Place("b", 1)] * 2 + [Place("here", 1)]
    assert spread(2, {"here": 4, "b": 2}, 1, last={"here"}) == [Place("b", 1)] * 2
    assert len(spread(9, {"a": 2, "b": 3, "empty": 0}, None)) == 5  # no more than there are cores


def test_workers_that_need_a_share_of_a_gpu_go_where_one_is() -> None:
    free = with_gpus({"a": 8, "b": 8, "c": 1}, {"b": 1.0, "c": 0.5}, 0.25)
    assert free == {"a": 0, "b": 4, "c": 1}
    assert spread(2, free, 1) == [Place("b", 1)] * 2
    assert len(spread(9, free, 1)) == 5
    assert with_gpus({"b": 8}, {"b": 0.25}, 0.25) == {"b": 1}
    assert with_gpus({"b": 8}, {"b": 0.0}, 0.25) == {"b": 0}


def test_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolved("local") == Address(None)
    assert resolved("10.0.0.7:6379") == Address("10.0.0.7", 6379)
    assert str(resolved("[::1]:6379")) == "::1:6379"
    monkeypatch.setenv("RAY_ADDRESS", "head:1234")
    assert resolved("auto") == Address("head", 1234)
    for wrong in ("10.0.0.7", "ray://10.0.0.7:10001", ":6379", "head:port", "head:0", "head:70000"):
        with pytest.raises(UsageError, match="must be HOST:PORT"):
            resolved(wrong)
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert not is_loopback("192.0.2.1")
    assert not is_loopback("no-such-host.invalid")
