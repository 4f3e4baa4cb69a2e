"""The faults that `chaos.py` injects. Each function does its harm for real and leaves a run that must go on by itself.

A fault that ends the run resumes it and says how many recorded steps that may cost.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import psutil

from chaos_training import Training
from helpers.network_nodes import NetworkNodes

Inject = Callable[[Training, Random], None]
_DISK = "600m"  # size of the file system that can be filled


def kill_worker(training: Training, draw: Random) -> None:
    """A worker, actor or learner is killed."""
    victim = draw.choice(training.workers())
    training.strike(victim)
    with contextlib.suppress(psutil.NoSuchProcess):
        victim.kill()


def kill_all_workers(training: Training, draw: Random) -> None:
    """All workers that act are killed at once: here that ends a run with a checkpoint and exit code 4."""
    del draw
    for victim in training.workers():
        if "learner" not in victim.info["cmdline"]:
            victim.kill()
    training.wait_for_end(4)
    training.resume(0)


def freeze_worker(training: Training, draw: Random) -> None:
    """A worker stands still for good: it must be found, killed and replaced."""
    victim = draw.choice(training.workers())
    training.strike(victim)
    with contextlib.suppress(psutil.NoSuchProcess):
        victim.suspend()


def freeze_worker_briefly(training: Training, draw: Random) -> None:
    """A worker stands still for less than the time that it may be silent."""
    victim = draw.choice(training.workers())
    victim.suspend()
    training.watch(lambda: False, draw.uniform(0.1, 0.5) * training.config.parallel.worker_timeout)
    with contextlib.suppress(psutil.NoSuchProcess):
        victim.resume()


def stop_driver(training: Training, draw: Random) -> None:
    """The command gets SIGTERM or SIGINT: it must save everything."""
    number = draw.choice((signal.SIGTERM, signal.SIGINT))
    training.process.send_signal(number)
    training.wait_for_end(128 + number)
    training.resume(0)


def kill_driver(training: Training, draw: Random) -> None:
    """The command, or its process group, is killed."""
    _kill(training, draw)
    training.resume(training.interval)


def _kill(training: Training, draw: Random) -> None:
    end = draw.choice((os.kill, os.killpg))
    end(training.process.pid, signal.SIGKILL)
    training.wait_for_end(-signal.SIGKILL)


def damage_checkpoint(training: Training, draw: Random) -> None:
    """The newest checkpoint is cut off or has a bit flipped: the one before it must be used."""
    if draw.random() < 0.5 and len(training.whole_checkpoints()) > 1:
        _kill(training, draw)
    else:
        training.process.send_signal(signal.SIGTERM)
        training.wait_for_end(128 + signal.SIGTERM)
    whole = training.whole_checkpoints()
    if len(whole) > 1:  # at least the first one and the one that was just saved
        path, _ = whole[-1]
        data = bytearray(path.read_bytes())
        if draw.random() < 0.5:
            del data[draw.randrange(len(data)) :]
        else:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        training.damaged[path] = bytes(data)
    training.resume(2 * training.interval)


class Disk:
    """A small file system that can be filled up."""

    def __init__(self, place: Path):
        self._ballast = place / "ballast"

    def fill_up(self, training: Training, draw: Random) -> None:
        """There is no space left for the run, which must end with exit code 6; then there is again."""
        del draw
        with self._ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(2**16))
        training.wait_for_end(6)
        self._ballast.unlink()
        training.resume(training.interval)


@contextlib.contextmanager
def disk(place: Path) -> Iterator[Disk | None]:
    """A file system at this place; None where this user may not mount one."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield Disk(place)
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


class NodeFaults:
    """Faults of a cluster's nodes other than the head, which the driver is on."""

    def __init__(self, nodes: NetworkNodes):
        self._nodes = nodes

    def _node(self, training: Training, draw: Random) -> int:
        """A node, one that has workers if there is one; all nodes are in order before it is done harm to."""
        self._nodes.repair()
        workers = {process.pid for process in training.workers()}
        others = range(1, len(self._nodes.cores))
        busy = [node for node in others if workers & {process.pid for process in self._nodes.processes(node)}]
        return draw.choice(busy or list(others))

    def cut_briefly(self, training: Training, draw: Random) -> None:
        """A link is cut for less than the time after which a node counts as lost."""
        node = self._node(training, draw)
        self._nodes.cut(node)
        training.watch(lambda: False, draw.uniform(0.5, 4.0))
        self._nodes.heal(node)

    def cut(self, training: Training, draw: Random) -> None:
        """A link is cut until training goes on without the node, then healed."""
        node = self._node(training, draw)
        self._nodes.cut(node)
        training.watch(lambda: False, training.config.parallel.worker_timeout)
        training.wait_for_updates()
        self._nodes.repair()

    def kill_node(self, training: Training, draw: Random) -> None:
        """Ray's process on a node is killed; later the node is started again."""
        node = self._node(training, draw)
        for process in self._nodes.processes(node):
            if Path(process.info["cmdline"][0]).name == "raylet":
                process.kill()
        training.wait_for_updates()
        self._nodes.repair()

    def freeze_node(self, training: Training, draw: Random) -> None:
        """All processes of a node stand still until training goes on without them."""
        frozen = self._nodes.processes(self._node(training, draw))
        for process in frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        training.watch(lambda: False, training.config.parallel.worker_timeout)
        training.wait_for_updates()
        for process in frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


DRIVER: dict[str, Inject] = {
    "SIGTERM or SIGINT of the driver": stop_driver,
    "SIGKILL of the driver": kill_driver,
}
WORKERS: dict[str, Inject] = {
    "SIGKILL of a worker": kill_worker,
    "SIGSTOP of a worker": freeze_worker,
    "SIGSTOP and SIGCONT of a worker": freeze_worker_briefly,
}
ALL_WORKERS: dict[str, Inject] = {"SIGKILL of all workers": kill_all_workers}
CHECKPOINT: dict[str, Inject] = {"damaged checkpoint": damage_checkpoint}


def node_faults(nodes: NetworkNodes) -> dict[str, Inject]:
    """What can happen to the nodes of a cluster."""
    faults = NodeFaults(nodes)
    return {
        "link cut briefly": faults.cut_briefly,
        "link cut": faults.cut,
        "SIGKILL of a node": faults.kill_node,
        "frozen node": faults.freeze_node,
    }
