"""The server that forks the processes of tests: what it makes is as a new interpreter would be."""

import os
import signal
import subprocess

import pytest

from tests.kit import fork_server


def test_a_program_has_its_words_input_folder_and_environment(tmp_path):
    code = "import os, sys; print(sys.argv, sys.stdin.read(), os.getcwd(), os.environ['WHO'], __name__)"
    done = fork_server.run(["-c", code, "a", "b"], input=b"hi", cwd=tmp_path, env={"WHO": "me"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == f"['-c', 'a', 'b'] hi {tmp_path} me __main__\n"


@pytest.mark.parametrize(
    ("code", "ended", "told"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('why')", 1, "why\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import atexit; atexit.register(print, 'last', flush=True)", 0, ""),
        ("import warnings; warnings.warn('old')", 1, "UserWarning: old\n"),
    ],
)
def test_it_ends_as_an_interpreter_does(code, ended, told):
    forked = fork_server.run(["-W", "error", "-c", code])
    assert forked.returncode == ended
    assert forked.stderr.decode().endswith(told)
    assert forked.stdout == (b"last\n" if "last" in code else b"")


def test_it_is_a_process_of_its_own_that_can_be_stopped_and_killed(tmp_path):
    said = tmp_path / "said"
    with open(said, "wb") as out:
        process = fork_server.start(["-c", "import sys; sys.stdin.read()"], stdout=out, stderr=out)
    try:
        assert process.pid != os.getpid()
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGSTOP)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        process.kill()  # it has ended: nothing happens
    finally:
        process.kill()
        process.stdin.close()


def test_nothing_of_the_server_is_open_in_what_it_forks():
    code = "import os; print(sorted(os.listdir('/proc/self/fd'), key=int))"
    first, second = fork_server.run(["-c", code]), fork_server.run(["-c", code])
    assert first.stdout == second.stdout == b"['0', '1', '2', '3']\n", "3 is the folder that is listed"
