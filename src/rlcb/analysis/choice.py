"""Which group the advice of a comparison is about, and against whom that has to hold."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlcb.analysis.best import listed, ranked
from rlcb.analysis.records import ComparableSet, Group, Pair
from rlcb.analysis.untrusted import section
from rlcb.analysis.work import work_differences

SPEED, AT_EQUAL_STEPS = "average_fps", "reward_at_equal_steps"
MOST_NAMED = 3  # groups in a sentence


@dataclass(frozen=True)
class Choice:
    """The group that the advice is about, and what is established about it."""

    one: ComparableSet
    pick: Group
    metric: str  # that rewards are judged by
    peers: list[Group]  # the same algorithm and work, so that the faster one is better
    rivals: list[Group]  # all others that could have been chosen: those that have a reward of every seed

    def pair(self, metric: str, other: Group) -> Pair | None:
        """The test of the group against another."""
        return self.one.pair(metric, self.pick.label, other.label)

    def beats(self, metric: str, other: Group) -> bool:
        """Whether the group is shown to be better than another."""
        found = self.pair(metric, other)
        return found is not None and found.winner == self.pick.label

    def loses(self, metric: str, other: Group) -> bool:
        """Whether another group is shown to be better."""
        found = self.pair(metric, other)
        return found is not None and found.winner == other.label

    @property
    def equal(self) -> list[Group]:
        """Rivals with the same reward."""
        mean = self.pick.metrics[self.metric].mean
        return [rival for rival in self.rivals if rival.metrics[self.metric].mean == mean]

    @property
    def unsettled(self) -> list[Group]:
        """Rivals with another reward that the group is not shown to be better than."""
        return [rival for rival in self.rivals if rival not in self.equal and not self.beats(self.metric, rival)]

    @property
    def speed(self) -> bool | None:
        """Whether it is shown to be faster than each of its peers; None where it has none."""
        return all(self.beats(SPEED, peer) for peer in self.peers) if self.peers else None

    @property
    def reward(self) -> bool | None:
        """Whether it is shown to be better than each of its rivals; None where it has none."""
        return not self.unsettled and not self.equal if self.rivals else None


def choose(one: ComparableSet, valid: Sequence[Group]) -> Choice | None:
    """The best in reward; among its like that are not shown to be worse than any other the fastest.

    Where rewards are known, a group without one of every seed is never the one to use. A group that only other
    programs' runs can be compared with has these as its rivals, by what they can be judged by.
    """
    if (
        len(one.measured) > 1
        and len(valid) == 1
        and all(group.external for group in one.measured if group not in valid)
    ):
        rivals = [group for group in ranked(one.measured, AT_EQUAL_STEPS) if group.external]
        return Choice(one, valid[0], AT_EQUAL_STEPS, [], rivals if ranked(valid, AT_EQUAL_STEPS) else [])
    metric = _reward_metric(one, valid)
    rewards, speeds = ranked(valid, metric), ranked(valid, SPEED)
    candidates = rewards or speeds
    if not candidates:
        return None
    leader, worse = candidates[0], worse_of(one, metric, candidates)
    alike = [group for group in speeds if group in candidates and group not in worse and _same_work(group, leader)]
    pick = alike[0] if leader in alike else leader
    peers = [group for group in speeds if group is not pick and _same_work(group, pick)] if pick in speeds else []
    return Choice(one, pick, metric, peers, [group for group in rewards if group is not pick])


def worse_of(one: ComparableSet, metric: str, groups: Sequence[Group]) -> list[Group]:
    """Those of some groups that another of them is shown to be better than."""
    labels = [group.label for group in groups]
    behind = {pair.other(pair.winner) for pair in one.pairs if pair.metric == metric and pair.winner in labels}
    return [group for group in groups if group.label in behind]


def _reward_metric(one: ComparableSet, valid: Sequence[Group]) -> str:
    """Reward at equal time; after runs by time that is the reward at their end, evaluated where all are."""
    timed = any(section(group.runs[0].config, "training").get("duration_hours") for group in valid)
    at_equal_time = len(ranked(valid, "reward_at_equal_time")) == len(valid)
    return "reward_at_equal_time" if at_equal_time and not timed else one.reward_metric


def _same_work(one: Group, other: Group) -> bool:
    kind = (one.algorithm, one.variant, one.device) == (other.algorithm, other.variant, other.device)
    return kind and not work_differences(one.runs[0], other.runs[0])


def name_of(group: Group) -> str:
    """A group in a sentence: PPO parallel with 2 workers."""
    return re.sub(r" Parallel \((\d+ workers?)\)", r" parallel with \1", group.label).replace(
        " Sequential", " sequential"
    )


def names_of(groups: Sequence[Group]) -> str:
    """Few groups by name, of many the first."""
    names = [name_of(group) for group in groups]
    return listed(names if len(names) <= MOST_NAMED else [names[0], f"{len(names) - 1} other groups"])
