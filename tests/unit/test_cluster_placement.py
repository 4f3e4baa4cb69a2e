"""Addresses of clusters, and which worker goes to which node."""

from typing import TYPE_CHECKING

import pytest

from rlcb.cluster.address import Address, resolved
from rlcb.cluster.placement import Need, Node, Place, node_for, spread, with_gpus
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


def node(name: str, cores: float, gpus: float = 0.0, memory: float = 8.0) -> Node:
    return Node(name, name, name, Address("10.0.0.1", 1), cores, gpus, memory * 2**30)


def found(need: Need, nodes: list[Node], taken: dict[str, Need] | None = None) -> str | None:
    """The name of the node for a run."""
    free = {one.id: one for one in nodes}
    for name, other in (taken or {}).items():
        free[name] = free[name].less(other.cores or 0, other.gpus, other.memory)
    best = node_for(need, {one.id: one for one in nodes}, free)
    return best and best.name


def test_a_whole_run_goes_to_the_node_with_the_most_free_cores_that_has_all_it_needs() -> None:
    run, two = Need(2, 0, 2**30), [node("a", 4), node("b", 3)]
    assert found(run, two) == "a"
    assert found(run, two, {"a": Need(2, 0, 0)}) == "b"
    assert found(run, two, {"a": Need(3, 0, 0), "b": Need(2, 0, 0)}) is None
    assert found(run, [node("a", 4, memory=0.5), node("b", 2)]) == "b"
    assert found(Need(5, 0, 0), two) is None
    assert found(run, []) is None


def test_gpus_are_left_to_those_who_need_one() -> None:
    nodes = [node("gpu", 16, 1), node("plain", 4)]
    assert found(Need(2, 0, 0), nodes) == "plain"
    assert found(Need(2, 1, 0), nodes) == "gpu"
    assert found(Need(2, 0, 0), nodes, {"plain": Need(4, 0, 0)}) == "gpu"
    assert found(Need(2, 1, 0), nodes, {"gpu": Need(1, 1, 0)}) is None


def test_a_run_by_time_has_a_node_to_itself() -> None:
    nodes = [node("a", 4), node("b", 2)]
    assert found(Need(None, 0, 0), nodes) == "a"
    assert found(Need(None, 0, 0), nodes, {"a": Need(1, 0, 0)}) == "b"
    assert Need(None, 0, 0).on(nodes[0]).cores == 4
    assert str(Need(None, 1, 2**30)) == "all cores, a GPU and 1.0 GB of memory"
    assert str(node("a", 1, 2)) == "a: 1 core, 2 GPUs, 8.0 GB of memory"
