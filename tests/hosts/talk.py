"""Whether test hosts have talked to each other, not by ssh alone."""

import contextlib
from collections.abc import Iterator, Sequence

from hosts import Hosts

# Either end of an agent's link hears 450 bytes at least, which are its handshake; who is refused,
# 40 a time.
TALK_BYTES = 300


def heard_since(before: Sequence[int], hosts: Hosts) -> list[int]:
    return [now - then for now, then in zip(hosts.heard(), before, strict=True)]


def expect_talk(heard: Sequence[Sequence[int]], least: int = TALK_BYTES) -> None:
    """Two hosts of one of the groups have heard more bytes than that."""
    enough = [group for group in heard if sum(count > least for count in group) >= 2]
    assert enough, f"no two hosts have talked to each other: they have heard {heard} bytes"


@contextlib.contextmanager
def talk(*groups: Hosts) -> Iterator[None]:
    """Two hosts of one of the groups say something to each other meanwhile."""
    before = [group.heard() for group in groups]
    yield
    expect_talk([heard_since(was, group) for group, was in zip(groups, before, strict=True)])
