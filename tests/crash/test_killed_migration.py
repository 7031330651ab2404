"""A migration that is killed with -9, again and again, brings over everything once."""

import signal
import subprocess
import sys

import pytest

import penstock
from tests.contract.test_tarantool import BARE_SEED
from tests.tarantool import tarantool_server

_SCRIPT = """
import sys, penstock
host, port, user, password, path = sys.argv[1:]
with penstock.Tarantool(host, int(port), user=user, password=password) as source:
    source.migrate(path, "s", on_progress=lambda done, total: print(done, flush=True))
"""
#: Every seventh number is missing, now and then a longer run of them; several messages a second.
_MESSAGES = """
local sequence, count = 9, ...
for i = 1, count do
    sequence = sequence + (i % 7 == 0 and 2 or 1) + (i % 1000 == 0 and 50 or 0)
    local subject, created = 's' .. i % 13, 1700000100 + math.floor(i / 20)
    box.space.message:insert({sequence, {n = tostring(i)}, 'o/' .. i, subject, created})
end
for i = 1, 40 do box.space.consumers:insert({'c' .. i, 's' .. i % 13, i * 3}) end
"""


@pytest.fixture
def server():
    with tarantool_server() as server:
        server.eval(BARE_SEED % {"prefix": ""})
        yield server


def _start(server, path):
    arguments = [server.host, str(server.port), server.user, server.password, str(path)]
    return subprocess.Popen([sys.executable, "-c", _SCRIPT, *arguments], stdout=subprocess.PIPE)


def _killed_in_the_middle(server, path, done):
    """Kill one that has come further than `done`."""
    process = _start(server, path)
    for line in process.stdout:
        if int(line) > done:
            break
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()


def _migrated_with_kills(server, path, count, kills):
    server.eval(_MESSAGES, count)
    for kill in range(kills):
        _killed_in_the_middle(server, path, count * kill // (kills + 1))
    process = _start(server, path)
    process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0
    expected = server.eval(
        "local t = {} for _, m in box.space.message:pairs() do table.insert(t, m) end return t"
    )[0]
    with penstock.open(path) as store:
        stream = store.stream("s")
        found = [row for start in range(1, expected[-1][0] + 1, 1000) for row in _between(stream, start)]
        assert found == [
            (sequence, headers if isinstance(headers, dict) else {}, name, subject, created)
            for sequence, headers, name, subject, created in expected
        ]
        assert stream.get_message_count() == len(expected)
        assert stream.get_latest_sequence() == expected[-1][0]
        assert len(stream.get_consumers()) == 41
        assert stream.get_consumer_position("c7", "s7") == 21


def _between(stream, start):
    return [row for row in stream.get_all_messages(start, 1000) if row[0] < start + 1000]


@pytest.mark.slow
def test_killed_in_the_middle_it_goes_on_where_it_was(server, tmp_path):
    _migrated_with_kills(server, tmp_path / "store", count=2000, kills=2)


@pytest.mark.slow
def test_killed_again_and_again_it_brings_everything_once(server, tmp_path):
    _migrated_with_kills(server, tmp_path / "store", count=60_000, kills=15)
