"""The command as a whole: the store it works on, its help, its exit codes, terminals."""

import os
import pty
import subprocess
import sys

import pytest

import penstock
from tests.e2e.command import COMMAND, Command
from tests.kit import processes

VERBS = [
    ("write", "orders", "x"),
    ("read", "orders"),
    ("topic", "create", "orders", "--exists-ok"),
    ("topic", "list"),
    ("topic", "show", "orders"),
    ("topic", "alter", "orders", "--retention", "1h"),
    ("topic", "drop", "orders", "--yes"),
    ("consumer", "list"),
    ("consumer", "show", "orders", "c"),
    ("consumer", "seek", "orders", "c", "earliest", "--yes"),
    ("consumer", "drop", "orders", "c", "--yes"),
    ("status",),
    ("vacuum",),
    ("verify",),
]


@pytest.fixture
def cli(tmp_path):
    return Command(tmp_path)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_the_store_may_be_named_anywhere_and_every_verb_has_json(cli, verb):
    for place in range(3 if verb[0] in ("topic", "consumer") else 2):
        path = cli.folder / f"store-{place}"
        with penstock.open(path) as store:
            store.create_topic("orders").add_consumer("c")
        at = (0, len(verb), 1)[place]
        ended = cli.quick(*verb[:at], "-s", str(path), *verb[at:], "--json")
        assert ended.code == 0, ended
        assert all(line.startswith("{") for line in ended.lines)
        assert not cli.store.exists()


def test_the_environment_names_the_store_and_what_stands_nearest_to_the_verb_wins(cli):
    for name in ("env", "before", "behind"):
        with penstock.open(cli.folder / name) as store:
            store.create_topic(f"in-{name}")
    assert "in-env" in cli.run("topic", "list", PENSTOCK_STORE="env").out
    assert "in-before" in cli.run("--store=before", "topic", "list", PENSTOCK_STORE="env").out
    assert "in-behind" in cli.quick("-s", "before", "topic", "list", "-sbehind").out


def test_an_address_is_refused_until_there_is_a_server(cli):
    ended = cli.quick("topic", "list", "-s", "ws://127.0.0.1:7367")
    assert (ended.code, "opens folders, not addresses" in ended.err) == (2, True)


def test_version_and_help(cli):
    assert cli.ok("--version").out == f"penstock {penstock.__version__}\n"
    text = cli.ok("--help").out
    for verb in ("write", "read", "topic", "consumer", "status", "vacuum", "verify"):
        assert f" {verb} " in text
    for verb in VERBS:
        words = verb[: 2 if verb[0] in ("topic", "consumer") else 1]
        assert "--json" in cli.quick(*words, "--help").out


@pytest.mark.parametrize(
    "arguments", [("nope",), ("read",), ("read", "orders", "--bogus"), ("topic",), (), ("read", "a", "b")]
)
def test_what_is_not_understood_is_exit_code_2(cli, arguments):
    ended = cli.quick(*arguments)
    assert ended.code == 2
    assert ended.err.startswith("error: ") or "Usage: penstock" in ended.out


def test_a_folder_that_is_no_store_is_left_alone(cli):
    cli.store.mkdir()
    (cli.store / "letter.txt").write_text("dear diary")
    ended = cli.run("write", "orders", "x")
    assert ended.code == 2
    assert "is not a store" in ended.err
    assert os.listdir(cli.store) == ["letter.txt"]


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_typer_or_rich_the_exact_pip_line_is_printed(cli, missing):
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from penstock.cli import main\n"
        "sys.exit(main(['status']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=cli.environment, cwd=cli.folder
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"error: the command line needs {missing}, which is not installed\n"
        'hint: pip install "penstock[cli]"\n'
    )


def test_colours_on_a_terminal_and_none_in_a_pipe(cli):
    with penstock.open(cli.store) as store:
        store.create_topic("orders")
    assert "\x1b" not in cli.quick("topic", "list").out
    ours, theirs = pty.openpty()
    process = processes.start(
        [*COMMAND, "topic", "list"], stdout=theirs, stdin=theirs, stderr=theirs, cwd=cli.folder,
        env=cli.environment | {"TERM": "xterm-256color"},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:
        pass  # the other end was closed
    os.close(ours)
    assert process.wait() == 0
    assert b"\x1b[1m" in shown
    assert b"orders" in shown
