"""What the state machines here share: a folder to play in, how long they play, and their canaries."""

import os
import tempfile

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test


def scratch_folder():
    """A new folder, in memory where there is room; the machine removes it."""
    room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return tempfile.mkdtemp(prefix="penstock-model-", dir=room)


def everyday(examples, steps):
    """For `make test`: explaining a failure traces every line, which is slow before Python 3.12."""
    return at_length(examples, steps, phases=set(Phase) - {Phase.explain})


def at_length(examples, steps, **more):
    return settings(
        max_examples=examples, stateful_step_count=steps, deadline=None,
        suppress_health_check=list(HealthCheck), **more,
    )  # fmt: skip


def must_notice(machine, examples):
    """Play until something is wrong; a machine that finds nothing wrong with broken code fails here."""
    quick = at_length(examples, 30, phases=[Phase.generate], database=None)
    with pytest.raises((Exception, pytest.fail.Exception), match=r"(?s)."):
        run_state_machine_as_test(machine, settings=quick)
