"""Versioned weights: what is read is one version and whole, and which versions can be asked for."""

import os
from collections.abc import Iterator

import pytest
import torch

from rlcb.comm.versioned_weights import VersionedWeights


@pytest.fixture
def descriptor() -> Iterator[int]:
    number = os.memfd_create("published")
    yield number
    os.close(number)


def test_parts_lie_behind_one_another_and_are_seen_through_another_mapping(descriptor: int) -> None:
    writer, reader = VersionedWeights(descriptor, 6), VersionedWeights(descriptor, 6)
    writer.publish(3, torch.tensor([1.0, 2.0]), torch.tensor([3.0]), torch.tensor([4.0, 5.0, 6.0]))
    whole, beginning = torch.empty(6), torch.empty(2)
    assert reader.read(whole) == reader.read(beginning) == 3
    assert whole.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert beginning.tolist() == [1.0, 2.0]


def test_the_newest_version_is_read_even_if_its_number_is_lower(descriptor: int) -> None:
    published, vector = VersionedWeights(descriptor, 2), torch.empty(2)
    for version in (7, 8, 7):  # new learners go back to the last update that was reported
        published.publish(version, torch.full((2,), float(version)))
        assert published.read(vector) == version
        assert vector.tolist() == [version, version]
    assert published.read_version(8).tolist() == [8.0, 8.0]


def test_the_last_two_versions_can_be_asked_for_and_no_others(descriptor: int) -> None:
    published = VersionedWeights(descriptor, 2)
    with pytest.raises(LookupError):
        published.read_version(0)
    for version in range(1, 6):
        published.publish(version, torch.full((2,), float(version)))
        for wanted in range(8):
            if wanted in (version, version - 1) and wanted > 0:
                assert published.read_version(wanted).tolist() == [wanted, wanted]
            else:
                with pytest.raises(LookupError):
                    published.read_version(wanted)


def test_what_was_read_stays_when_more_is_published(descriptor: int) -> None:
    published, vector = VersionedWeights(descriptor, 2), torch.empty(2)
    published.publish(1, torch.ones(2))
    published.read(vector)
    older = published.read_version(1)
    for version in (2, 3, 4):
        published.publish(version, torch.full((2,), float(version)))
    assert vector.tolist() == older.tolist() == [1.0, 1.0]


def test_going_back_spares_the_version_gone_back_to_whatever_is_broken_off_next(descriptor: int) -> None:
    published, vector = VersionedWeights(descriptor, 2), torch.empty(2)
    for version in (1, 2):
        published.publish(version, torch.full((2,), float(version)))
    assert published.roll_back(1).tolist() == [1.0, 1.0]
    assert published.read(vector) == 1
    published._words[0] += 1  # somebody begins to publish and dies over it, twice
    for _ in range(2):
        assert published.roll_back(1).tolist() == [1.0, 1.0]
        published._words[0] += 1
    published.publish(2, torch.full((2,), 2.0))
    assert published.read_version(1).tolist() == [1.0, 1.0]
    assert published.read_version(2).tolist() == [2.0, 2.0]
