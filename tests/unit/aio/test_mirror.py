"""Async classes have the names and parameters of the blocking ones: who knows one knows both."""

import inspect
from collections.abc import AsyncIterator

import pytest

import penstock
import penstock.aio
from penstock.consume.dead_letters import DeadLetters
from penstock.consume.reader import Reader
from penstock.events.events import Events
from penstock.sessions.sessions import Session, Sessions
from penstock.sql.session import SqlResult
from penstock.store import Store, Topic, Transaction
from penstock.streams.stream import Stream
from penstock.topic.scan import Scan
from penstock.topic.writer import Writer

TWINS = [
    (Store, penstock.aio.Store),
    (Topic, penstock.aio.Topic),
    (Writer, penstock.aio.Writer),
    (Reader, penstock.aio.Reader),
    (Scan, penstock.aio.Scan),
    (SqlResult, penstock.aio.SqlResult),
    (Transaction, penstock.aio.Transaction),
    (Events, penstock.aio.Events),
    (DeadLetters, penstock.aio.DeadLetters),
    (Sessions, penstock.aio.Sessions),
    (Session, penstock.aio.Session),
    (Stream, penstock.aio.Stream),
]
#: Public only for the parts of Penstock itself.
INSIDE = {
    "adopt", "after_fork_in_child", "bell", "buffer", "check", "check_choice", "check_seqno", "choose",
    "clock", "coder", "create_topic_holding", "encoded", "ended", "engine", "enlist", "fetches", "files",
    "find_topic",
    "flusher", "following", "guard", "help_out", "is_stopped", "keep_one_partition", "known_staging",
    "let_go", "numbering",
    "open_topic", "own_group", "packer", "pipeline_records", "poll", "producer", "push_stored",
    "push_without_waiting",
    "question",
    "require_raw", "require_writable", "revive", "roll_back_if_open", "settled_numbers", "staging_of",
    "stream_records", "tail", "take", "transactions",
}  # fmt: skip
#: What the async classes have besides: the way back to what may block.
BESIDES = {"blocking"}
#: These open nothing and wait for nothing, or return what is awaited or iterated.
AT_ONCE = {"writer", "reader", "batches", "messages", "record_batches", "stop", "transaction"} | {
    "Stream.subscribe", "Stream.notifications"
}  # fmt: skip
SPECIAL = {
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "__iter__": "__aiter__",
    "__next__": "__anext__",
    "__arrow_c_stream__": "__arrow_c_stream__",
}


def public(kind):
    """Methods and properties that users see."""
    return {
        name
        for name, found in inspect.getmembers(kind)
        if not name.startswith("_") and (callable(found) or isinstance(found, property))
    }


def each_method():
    for blocking, mirrored in TWINS:
        for name in sorted(public(blocking) - INSIDE):
            yield pytest.param(blocking, mirrored, name, id=f"{blocking.__name__}.{name}")


def parameters(function):
    """Names, kinds, defaults and types, as they are written."""
    return [
        (each.name, each.kind, each.default, each.annotation)
        for each in inspect.signature(function).parameters.values()
        if each.name != "self"
    ]


@pytest.mark.parametrize(("blocking", "mirrored", "name"), list(each_method()))
def test_every_method_has_its_twin(blocking, mirrored, name):
    original, twin = getattr(blocking, name), getattr(mirrored, name, None)
    assert twin is not None, f"penstock.aio.{mirrored.__name__} lacks {name}"
    if isinstance(original, property):
        assert isinstance(twin, property)
        return
    assert parameters(twin) == parameters(original)
    is_awaited = not {name, f"{blocking.__name__}.{name}"} & AT_ONCE
    assert inspect.iscoroutinefunction(twin) == is_awaited


@pytest.mark.parametrize(("blocking", "mirrored"), TWINS, ids=lambda kind: kind.__module__)
def test_with_and_for_become_async_with_and_async_for(blocking, mirrored):
    for name, twin in SPECIAL.items():
        assert hasattr(mirrored, twin) == hasattr(blocking, name)
    assert blocking.__name__ == mirrored.__name__


def test_each_twin_has_what_the_other_has(tmp_path):
    """Also what is no method: attributes show only on an instance."""
    with penstock.open(tmp_path) as store:
        topic = store.create_topic("orders")
        with topic.reader() as reader, topic.writer() as writer, store.transaction() as transaction:
            for blocking, mirrored in TWINS:
                opened = (
                    store, topic, reader, writer, topic.scan(), transaction, store.events(),
                    store.dead_letters("orders"), store.sessions, store.sessions.open("mail"),
                    store.stream("stream"), store.sql("create topic if not exists orders"),
                )  # fmt: skip
                (instance,) = [each for each in opened if type(each) is blocking]
                attributes = {name for name in vars(instance) if not name.startswith("_")}
                assert public(mirrored) - BESIDES == (public(blocking) | attributes) - INSIDE


def test_open_takes_the_same(tmp_path):
    assert parameters(penstock.aio.open) == parameters(penstock.open)


def test_docstrings_promise_the_same():
    """A twin has the first sentence of its blocking method."""
    different = {
        f"{blocking.__name__}.{name}"
        for blocking, mirrored in TWINS
        for name in public(blocking) - INSIDE
        if first_line(getattr(blocking, name)) != first_line(getattr(mirrored, name))
    }
    assert not different


def first_line(thing):
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def test_the_names_of_the_module():
    assert penstock.aio.__all__ == sorted(penstock.aio.__all__, key=lambda name: (name.islower(), name))
    assert {kind.__name__ for kind, _ in TWINS} < set(penstock.aio.__all__)
    assert issubclass(type(penstock.aio.Scan.messages(None)), AsyncIterator)
