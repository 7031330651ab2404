"""Processes that kill themselves at a named moment: python -m tests.payloads.killed_process STORE MOMENT."""

import os
import signal
import sys

import penstock
from tests.kit.bodies import BodyTrim, FileBodies
from tests.kit.logs import Log
from tests.kit.system import CommandClock
from tests.kit.topics import TopicAppender, inside


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def after(function, count=1):
    """The function, and death when it was called so often."""
    calls = 0

    def wrapped(*arguments, **options):
        nonlocal calls
        result = function(*arguments, **options)
        calls += 1
        if calls == count:
            die()
        return result

    return wrapped


def body_before_message(topic):
    TopicAppender._append = die
    topic.write(os.urandom(100_000))


def bodies_before_commit(topic):
    store = penstock.open(os.path.dirname(os.path.dirname(inside(topic).folder)), clock=CommandClock())
    tx = store.transaction()
    tx.write_many("images", [os.urandom(100_000)] * 3)
    tx.commit = die
    tx.commit()


def half_a_body(topic):
    FileBodies._put_in_place = die
    topic.write(os.urandom(100_000))


def list_before_trim(topic):
    Log.trim = die
    topic.vacuum()


def messages_before_bodies(topic):
    BodyTrim.delete = die
    topic.vacuum()


def some_bodies_deleted(topic):
    unlink = inside(topic).files.unlink
    inside(topic).bodies._present()._files.unlink = after(unlink, 2)
    topic.vacuum()


def bodies_deleted_list_left(topic):
    FileBodies.delete = after(FileBodies.delete)
    topic.vacuum()


def topic_before_bodies(topic):
    from tests.kit.stores import DroppedBodies

    DroppedBodies.delete = die
    store = penstock.open(os.path.dirname(os.path.dirname(inside(topic).folder)), clock=CommandClock())
    store.drop_topic("images")


if __name__ == "__main__":
    with penstock.open(sys.argv[1], clock=CommandClock()) as opened:
        globals()[sys.argv[2]](opened.topic("images"))
