"""Statements about topics, carried out: all of one is checked before anything of it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.errors import AlreadyExists, InvalidOption, UnknownTopic, WrongType
from penstock.options import TopicOptions, topic_changes
from penstock.parse import consumer_name, topic_name
from penstock.sql.statements import TopicAction, TopicStatement
from penstock.sql.words import CONSUMER_WORDS, TOPIC_WORDS, consumer_option, reset_option, topic_option
from penstock.state.consumers import ConsumerOptions
from penstock.store.consumers import options_from
from penstock.store.store import Store
from penstock.store.topic import Topic

Options = dict[str, Any]


class Defined(NamedTuple):
    """What a statement did: "created", "altered", "dropped", or "unchanged" where IF said so."""

    topic: str
    outcome: str


def define(store: Store, statement: TopicStatement) -> Defined:
    """Carry out a statement; raises `InvalidSql` where its words are wrong, else as `create_topic` does."""
    return {"create": _create, "alter": _alter, "drop": _drop}[statement.verb](store, statement)


def _create(store: Store, statement: TopicStatement) -> Defined:
    _said(statement, statement.at, topic_name, statement.topic)
    options: Options = {}
    for action in statement.actions:
        if action.verb == "set":
            options = _topic_options(statement, action)
            _said(statement, action.at, lambda wanted: TopicOptions(**topic_changes(wanted)), options)
    consumers = _new_consumers(store, statement, frozenset())
    try:
        topic = store.create_topic(statement.topic, **options)
    except AlreadyExists:
        if not statement.if_needed:
            raise
        return Defined(statement.topic, "unchanged")
    for name, wanted in consumers.items():
        topic.add_consumer(name, **wanted)
    return Defined(statement.topic, "created")


def _alter(store: Store, statement: TopicStatement) -> Defined:
    topic = store.topic(statement.topic)
    there = frozenset(each.name for each in topic.open_topic.consumers.of_topic(topic.open_topic.record.id))
    changes = _topic_changes(topic, statement)
    added = _new_consumers(store, statement, there)
    altered = _altered_consumers(store, statement, there)
    if changes:
        topic.alter(**changes)
    for action in statement.actions:
        name = action.consumer or ""
        if action.verb == "add":
            topic.add_consumer(name, **added[name])
        elif action.verb == "drop":
            topic.drop_consumer(name)
    for name, wanted in altered.items():
        topic.alter_consumer(name, **wanted)
    return Defined(statement.topic, "altered")


def _drop(store: Store, statement: TopicStatement) -> Defined:
    try:
        store.drop_topic(statement.topic)
    except UnknownTopic:
        if not statement.if_needed:
            raise
        return Defined(statement.topic, "unchanged")
    return Defined(statement.topic, "dropped")


# Checking. Nothing is changed here.


def _topic_changes(topic: Topic[Any], statement: TopicStatement) -> Options:
    """All that a statement changes of a topic's options, checked together."""
    changes: Options = {}
    for action in statement.actions:
        if action.verb not in ("set", "reset"):
            continue
        wanted = (
            _topic_options(statement, action)
            if action.verb == "set"
            else _reset_options(statement, action, TOPIC_WORDS)
        )
        _refuse_repeated(statement, action, changes, wanted)
        changes |= wanted
        _said(statement, action.at, topic.options.altered, changes)
    return changes


def _new_consumers(store: Store, statement: TopicStatement, there: frozenset[str]) -> dict[str, Options]:
    found: dict[str, Options] = {}
    for action in statement.actions:
        if action.verb != "add":
            continue
        name = _said(statement, action.at, consumer_name, action.consumer)
        if name in found or name in there:
            raise statement.refused(
                action.at, f"consumer {name!r} is there already", "ALTER CONSUMER changes it"
            )
        found[name] = _consumer_options(store, statement, action)
    return found


def _altered_consumers(store: Store, statement: TopicStatement, there: frozenset[str]) -> dict[str, Options]:
    found: dict[str, Options] = {}
    for action in statement.actions:
        if action.verb not in ("alter", "forget", "drop"):
            continue
        name = action.consumer or ""
        if name not in there:
            known = f"consumers: {', '.join(sorted(there))}" if there else "it has none yet"
            raise statement.refused(action.at, f"{statement.topic} has no consumer {name!r}", known)
        if action.verb == "drop":
            continue
        wanted = (
            _consumer_options(store, statement, action)
            if action.verb == "alter"
            else _reset_options(statement, action, CONSUMER_WORDS)
        )
        _refuse_repeated(statement, action, found.get(name, {}), wanted)
        found[name] = found.get(name, {}) | wanted
    return found


def _topic_options(statement: TopicStatement, action: TopicAction) -> Options:
    """The settings of an action as `create_topic` takes them, each checked by itself."""
    found: Options = {}
    for each in action.settings:
        said = _said(statement, each.at, topic_option, each.word, each.value)
        _said(statement, each.at, topic_changes, said)
        found |= said
    return found


def _consumer_options(store: Store, statement: TopicStatement, action: TopicAction) -> Options:
    found: Options = {}
    for each in action.settings:
        said = _said(statement, each.at, consumer_option, each.word, each.value)
        now = store.clock.now_ns()
        _said(statement, each.at, options_from, ConsumerOptions(), now, said)
        found |= said
    return found


def _reset_options(statement: TopicStatement, action: TopicAction, words: Mapping[str, Any]) -> Options:
    found: Options = {}
    for each in action.settings:
        found |= _said(statement, each.at, reset_option, each.word, words)
    return found


def _refuse_repeated(
    statement: TopicStatement, action: TopicAction, before: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    repeated = sorted(set(before) & set(wanted))
    if repeated:
        raise statement.refused(action.at, f"{', '.join(repeated)} is said twice", "leave one out")


def _said(statement: TopicStatement, at: int, call: Callable[..., Any], *arguments: Any) -> Any:
    """What a check returns; what it refuses is said with the place in the statement."""
    try:
        return call(*arguments)
    except (InvalidOption, WrongType) as error:
        raise statement.refused(at, str(error.args[0]), error.hint) from None
