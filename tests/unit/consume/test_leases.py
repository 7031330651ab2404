"""The lease file alone: locks tell who holds what, the bytes only who is who."""

import os

import pytest

from penstock.byte_lock import ByteLock
from penstock.consume.leases import MEMBERS_MOST, NUMBERS_MAX, LeaseFile
from penstock.consume.membership import _seen
from penstock.errors import Closed, Unavailable
from penstock.files import Files


@pytest.fixture
def opened(tmp_path):
    """Opens the file as another member does; closes all at the end."""
    files = []

    def opened(*, join=True, fixed=False):
        files.append(LeaseFile(str(tmp_path / "consumers" / "c"), Files()))
        if join:
            files[-1].join(1, fixed=fixed)
        return files[-1]

    yield opened
    for file in files:
        file.close()


def test_canary_bytes_held_by_others_are_found_wherever_they_lie(tmp_path):
    """The kernel names one lock at a time, in no order that helps, and joins neighbours of one owner."""
    path = tmp_path / "file"
    path.touch()
    fds = [os.open(path, os.O_RDWR) for _ in range(3)]
    try:
        first, second, looker = map(ByteLock, fds)
        for byte in (7, 8, 9, 2, 40):
            assert first.try_lock(byte)
        for byte in (3, 10, 41):
            assert second.try_lock(byte)
        assert looker.held_elsewhere(0, 100) == {2, 3, 7, 8, 9, 10, 40, 41}
        assert looker.held_elsewhere(3, 9) == {3, 7, 8}
        assert first.held_elsewhere(0, 100) == {3, 10, 41}, "one's own do not count"
        assert looker.held_elsewhere(50, 60) == set()
    finally:
        for fd in fds:
            os.close(fd)


def test_members_get_the_first_free_number_and_leave_it_when_they_close(opened):
    first, second = opened(), opened()
    assert (first.number, second.number) == (0, 1)
    first.close()
    assert opened().number == 0
    assert sorted(second.look(()).members) == [0, 1]


def test_a_lease_is_held_by_one(opened):
    first, second = opened(), opened()
    assert first.try_take(3)
    assert not second.try_take(3)
    assert second.look(range(8)).held == {3: 0}
    assert first.look(range(8)).held == {}, "one's own are left out"
    first.release(3)
    assert second.try_take(3)
    second.close()
    assert first.look(range(8)).held == {}


def test_numbers_far_apart_are_as_good_as_neighbours(opened):
    """Children of splits have numbers of their own, up to a million in a topic's life."""
    first, second = opened(), opened()
    numbers = (0, 7, 8, 123_456, NUMBERS_MAX - 1)
    assert all(first.try_take(number) for number in numbers[1::2])
    assert second.look(numbers).held == {7: 0, 123_456: 0}
    second.kick(0, [123_456])
    assert second.try_take(123_456)
    assert second.try_take(NUMBERS_MAX - 1)
    assert opened().look(numbers).held == {7: 0, 123_456: 1, NUMBERS_MAX - 1: 1}


def test_a_file_made_smaller_has_room_for_all_numbers(opened, tmp_path):
    opened()
    os.truncate(tmp_path / "consumers" / "c", 145_536)
    assert (
        LeaseFile(str(tmp_path / "consumers" / "c"), Files(), write=False).look([NUMBERS_MAX - 1]).held == {}
    )
    assert opened().try_take(NUMBERS_MAX - 1)


def test_what_a_kicked_member_holds_can_be_taken_although_its_lock_stays(opened):
    stopped, other, admin = opened(), opened(), opened(join=False)
    assert stopped.try_take(0)
    assert stopped.try_take(1)
    admin.kick(stopped.number, [0, 1])
    assert stopped.is_kicked()
    assert not other.is_kicked()
    assert other.look(range(2)).sharing() == [1]
    assert other.look(range(2)).held == {}
    assert other.try_take(0)
    assert other.try_take(1)
    stopped.release(0)
    assert not stopped.try_take(0), "it has the lock of an old round only"
    assert admin.look(range(2)).held == {0: 1, 1: 1}
    admin.kick(other.number, [0])
    assert opened().try_take(0), "and so on, round after round"


def test_a_member_that_chose_its_partitions_takes_no_part_in_the_sharing(opened):
    opened(fixed=True)
    sharing = opened()
    assert sharing.look(()).sharing() == [1]


def test_a_member_says_when_it_has_less_than_its_share(opened):
    first, second = opened(), opened()
    assert [member.wanted for member in first.look(()).members.values()] == [0, 0]
    second.want(7)
    assert [member.wanted for member in first.look(()).members.values()] == [0, 7]


def test_a_pid_that_was_used_again_is_not_named(opened):
    """The lock tells that the member lives; the record may be of a process that is gone."""
    member = opened().look(()).members[0]
    assert _seen(member) == (os.getpid(), False)
    assert _seen(member._replace(pid=1, started=member.started)) == (None, False)
    assert _seen(member._replace(pid=2**22 + 5)) == (None, False)


def test_there_is_a_limit_to_members(opened, monkeypatch):
    monkeypatch.setattr("penstock.consume.leases.MEMBERS_MOST", 2)
    assert MEMBERS_MOST == 1024
    opened()
    opened()
    with pytest.raises(Unavailable, match="2 members"):
        opened()


def test_a_removed_file_is_noticed_and_a_closed_one_refuses(opened):
    file = opened()
    assert not file.is_removed()
    os.unlink(file.path)
    assert file.is_removed()
    file.announce()
    file.close()
    with pytest.raises(Closed):
        file.try_take(0)
