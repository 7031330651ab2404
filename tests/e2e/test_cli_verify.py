"""`penstock verify`."""

import hashlib

import pytest

import penstock
from tests.e2e.command import Command


@pytest.fixture
def cli(tmp_path):
    command = Command(tmp_path)
    with penstock.open(command.store) as store:
        topic = store.create_topic("orders", segment_bytes="64KiB")
        for first in range(0, 3000, 300):
            topic.write_many([b"message %06d" % number * 5 for number in range(first, first + 300)])
        topic.vacuum()
        store.create_topic("other").write("x")
    return command


def damage(cli):
    data = sorted(cli.store.glob("topics/orders/parts/000000/*.data"))[1]
    content = bytearray(data.read_bytes())
    content[content.index(b"message") + 3] ^= 0x20
    data.write_bytes(content)
    return data


def listing(path):
    return sorted(
        (str(each), each.stat().st_mtime_ns, hashlib.sha256(each.read_bytes()).hexdigest())
        for each in path.rglob("*")
        if each.is_file()
    )


def test_a_sound_store_is_exit_code_0_and_says_how_much_was_checked(cli):
    ended = cli.ok("verify")
    assert ended.lines[0].startswith("3,001 messages, ")
    assert ended.lines[1] == "sound: 0 damaged places, 0 notes"
    assert ended.err == ""
    result = cli.quick_json("verify")
    assert (result["sound"], result["topics"], result["messages"]) == (True, 2, 3001)
    assert (result["damage"], result["notes"]) == ([], [])
    assert cli.quick_json("verify", "other")["messages"] == 1


def test_damage_is_exit_code_3_and_names_file_byte_and_offsets(cli):
    data = damage(cli)
    before = listing(cli.store)
    ended = cli.run("verify")
    assert ended.code == 3
    line = ended.lines[0]
    assert line.startswith(f"damage: {data.relative_to(cli.store)} at byte ")
    assert "a damaged frame (offsets " in line
    assert "DAMAGED: 1 damaged place, 0 notes" in ended.out
    assert listing(cli.store) == before
    ended = cli.quick("verify", "--json")
    assert ended.code == 3
    (result,) = ended.json_lines()
    (found,) = result["damage"]
    assert result["sound"] is False
    assert found["path"] == str(data.relative_to(cli.store))
    assert (found["severity"], found["topic"], found["partition"]) == ("damage", "orders", 0)
    assert f"at byte {found['byte']}" in line
    assert found["first_offset"] == int(data.name[:20])
    assert cli.quick("verify", "other").code == 0


def test_a_lost_index_is_a_note_and_exit_code_0(cli):
    next(iter(cli.store.glob("topics/orders/parts/000000/*.index"))).unlink()
    ended = cli.quick("verify")
    assert ended.code == 0
    assert ended.lines[0].startswith("note: ")
    assert "sound: 0 damaged places, 1 note" in ended.out


def test_a_missing_store_or_topic_is_a_usage_error(cli, tmp_path):
    assert cli.quick("verify", "nope").code == 2
    assert cli.quick("verify", "-s", str(tmp_path / "nowhere")).code == 2
    assert not (tmp_path / "nowhere").exists()
