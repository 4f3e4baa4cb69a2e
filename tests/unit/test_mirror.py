"""A run's directory at home while another machine writes it: consistent at every moment, nothing from outside."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlcb.cluster.mirror import Mirror
from rlcb.cluster.run_files import PIECE_BYTES, BadName, FileState, Piece, RunFiles, inside, piece_of
from rlcb.errors import ResourceError
from rlcb.files import write_whole

LOG = "logs/PPO_Sequential/metrics.jsonl"


class Node:
    """A run on a node: writes its files in the order in which a real one does."""

    def __init__(self, path: Path):
        self.path, self.update = path, 0
        for folder in ("checkpoints", "logs/PPO_Sequential"):
            (path / folder).mkdir(parents=True)
        write_whole(path / "run.json", b"{}")
        write_whole(path / "config.yaml", b"{}")

    def train(self, updates: int) -> None:
        for _ in range(updates):
            self.update += 1
            with (self.path / LOG).open("ab") as file:
                file.write(json.dumps({"update": self.update, "noise": os.urandom(8).hex()}).encode() + b"\n")

    def save(self, keep: int = 2) -> None:
        folder = self.path / "checkpoints"
        write_whole(folder / f"ppo_sequential_step_{self.update}.pt", str(self.update).encode() * 1000)
        for old in sorted(folder.glob("*.pt"), key=lambda path: int(path.stem.split("_")[-1]))[:-keep]:
            old.unlink()
        write_whole(self.path / "training_summary.json", str(self.update).encode())


class Killed(Exception):
    """Whoever copies is gone."""


class Breaking(RunFiles):
    """Lets so many calls through."""

    def __init__(self, folder: Path, calls: int, between: Callable[[], None] = lambda: None):
        super().__init__(folder)
        self.calls, self.between = calls, between

    def _count(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise Killed
        self.between()

    def listing(self) -> list[FileState]:
        self._count()
        return super().listing()

    def read(self, name: str, offset: int) -> Piece | None:
        self._count()
        return super().read(name, offset)

    def read_on(self, name: str, offset: int, digest: str) -> Piece | None:
        self._count()
        return super().read_on(name, offset, digest)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lines_of(folder: Path) -> list[int]:
    """The updates of the whole lines."""
    path = folder / LOG
    whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [json.loads(line)["update"] for line in whole]


def assert_resumable(home: Path) -> None:
    """Every checkpoint is whole, and the history has all that it counts, each update once."""
    lines = lines_of(home)
    assert lines == list(range(1, len(lines) + 1))
    for path in (home / "checkpoints").glob("*.pt"):
        step = path.stem.split("_")[-1]
        assert path.read_bytes() == step.encode() * 1000
        assert len(lines) >= int(step)
        assert (home / "run.json").exists()
        assert (home / "config.yaml").exists()


def test_what_changes_comes_home_and_what_is_removed_goes(tmp_path: Path) -> None:
    node, home = Node(tmp_path / "node"), tmp_path / "home"
    home.mkdir()
    mirror = Mirror(home, RunFiles(node.path))
    for _ in range(5):
        node.train(3)
        node.save()
        mirror.update()
        assert files_in(home) == files_in(node.path)
    mirror.compare()
    assert len(list((home / "checkpoints").iterdir())) == 2


def test_only_what_is_new_travels(tmp_path: Path) -> None:
    node, home = Node(tmp_path / "node"), tmp_path / "home"
    home.mkdir()
    source = Breaking(node.path, 100)
    mirror = Mirror(home, source)
    node.train(3)
    node.save()
    mirror.update()
    before = source.calls
    mirror.update()
    assert before - source.calls == 1  # the listing
    node.train(1)
    mirror.update()
    assert before - source.calls == 3  # and the end of the history


def test_a_copying_that_is_killed_at_any_moment_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    whole = 0
    for calls in range(40):
        node, home = Node(tmp_path / f"node{calls}"), tmp_path / f"home{calls}"
        home.mkdir()

        def goes_on(node: Node = node) -> None:
            """While it is being copied."""
            node.train(1)
            if node.update % 4 == 0:
                node.save()

        source = Breaking(node.path, calls, goes_on)
        mirror = Mirror(home, source)
        try:
            for _ in range(4):
                mirror.update()
                assert_resumable(home)
            whole += 1
        except Killed:
            assert_resumable(home)
        source.calls, source.between = 10**6, lambda: None
        Mirror(home, source).update(ended=True)  # by whoever comes next
        assert files_in(home) == files_in(node.path)
    assert 0 < whole < 40


def test_a_run_goes_on_elsewhere_and_what_its_checkpoint_did_not_count_is_replaced(tmp_path: Path) -> None:
    first, home = Node(tmp_path / "first"), tmp_path / "home"
    home.mkdir()
    mirror = Mirror(home, RunFiles(first.path))
    first.train(4)
    first.save()
    first.train(3)
    mirror.update()
    (tmp_path / "second").mkdir()
    source = Breaking(tmp_path / "second", 1000)
    again = Mirror(home, source)
    again.send()
    assert files_in(tmp_path / "second").keys() == files_in(home).keys() - {"training_summary.json"}
    again.update()
    assert source.calls == 999  # what was sent is known
    log = tmp_path / "second" / LOG
    lines = log.read_bytes().splitlines(keepends=True)
    with log.open("r+b") as file:  # as a resumed run does
        file.truncate(sum(map(len, lines[:4])))
    second = Node.__new__(Node)
    second.path, second.update = tmp_path / "second", 4
    second.train(6)  # longer again than what is at home
    again.update()
    assert lines_of(home) == list(range(1, 11))
    assert (home / LOG).read_bytes() == log.read_bytes()
    second.save()
    again.update()
    assert_resumable(home)


def test_a_file_of_several_pieces_and_one_that_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    node, home = Node(tmp_path / "node"), tmp_path / "home"
    home.mkdir()
    data = [os.urandom(2 * PIECE_BYTES + 5), os.urandom(PIECE_BYTES)]
    write_whole(node.path / "checkpoints" / "big.pt", data[0])
    replaced = []

    def replace_it() -> None:
        if len(replaced) == 4:  # between the first and the second piece
            write_whole(node.path / "checkpoints" / "big.pt", data[1])
        replaced.append(1)

    mirror = Mirror(home, Breaking(node.path, 1000, replace_it))
    mirror.update()
    assert (home / "checkpoints" / "big.pt").read_bytes() == data[0]
    mirror.update()
    assert (home / "checkpoints" / "big.pt").read_bytes() == data[1]
    target = RunFiles(tmp_path / "target")
    Mirror(home, target).send()
    assert (tmp_path / "target" / "checkpoints" / "big.pt").read_bytes() == data[1]


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../b", "", "a//b", ".lock", "a/.ssh", "a\x00b", "a/b/c/d/e/f", "x" * 300, "ä"]
)
def test_names_that_lead_elsewhere_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadName):
        inside(tmp_path, name)


def lying(node: Path, **changes: Any) -> RunFiles:
    """Names files that no run has."""

    class Lying(RunFiles):
        def listing(self) -> list[FileState]:
            return [replace(state, **changes) for state in super().listing()]

    return Lying(node)


def test_a_node_cannot_write_outside_of_the_run_nor_fill_the_disk(tmp_path: Path) -> None:
    node, home = Node(tmp_path / "node"), tmp_path / "home"
    home.mkdir()
    for wrong in ({"name": "../stolen"}, {"size": 2**50}, {"size": -1}):  # before anything is copied
        with pytest.raises(ResourceError, match="not allowed"):
            Mirror(home, lying(node.path, **wrong)).update()
    assert files_in(home) == {}
    outside = tmp_path / "outside"
    outside.mkdir()
    (home / "checkpoints").symlink_to(outside)
    node.train(1)
    node.save()
    with pytest.raises(ResourceError, match="symbolic link"):
        Mirror(home, RunFiles(node.path)).update()
    assert files_in(outside) == {}
    for number in range(1001):
        (node.path / f"file{number}").touch()
    with pytest.raises(ResourceError, match="far more"):
        Mirror(home, RunFiles(node.path)).update()


def test_what_is_damaged_on_its_way_is_refused(tmp_path: Path) -> None:
    node, home = Node(tmp_path / "node"), tmp_path / "home"
    home.mkdir()

    class Damaging(RunFiles):
        def read(self, name: str, offset: int) -> Piece | None:
            piece = super().read(name, offset)
            return piece and replace(piece, data=piece.data + b"x")

    with pytest.raises(ResourceError, match="damaged in transfer"):
        Mirror(home, Damaging(node.path)).update(ended=True)
    assert files_in(home) == {}
    with pytest.raises(OSError, match="damaged in transfer"):
        RunFiles(tmp_path / "other").write("a", 0, replace(piece_of(b"abc", 3), data=b"abd"))


def test_the_end_of_a_run_finds_a_history_that_differs(tmp_path: Path) -> None:
    node, home = Node(tmp_path / "node"), tmp_path / "home"
    home.mkdir()
    node.train(500)
    mirror = Mirror(home, RunFiles(node.path))
    mirror.update()
    assert files_in(home) == {}  # it could not be resumed yet
    mirror.update(ended=True)
    content = (home / LOG).read_bytes()
    with (home / LOG).open("r+b") as file:
        file.write(b"?")
    mirror.compare()
    assert (home / LOG).read_bytes() == content
