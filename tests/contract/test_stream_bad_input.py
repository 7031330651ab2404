"""Bad input to a stream gets a clear error, and changes nothing."""

import pytest

import penstock
from tests.contract.streams import sequences


@pytest.mark.parametrize("subject", ["orders-1", "orders_1", "a.b.c", "a/b/c", "-_./", "x" * 1000, "тема"])
def test_subjects_are_free_text(stream, subject):
    sequence = stream.publish(subject, b"x")
    assert sequences(stream.get_messages_by_subject(subject, 1, 10)) == [sequence]
    assert stream.get_latest_sequence_for_subject(subject) == sequence
    assert stream.update_consumer_position("billing", subject, 1)
    assert stream.get_consumers_by_subject(subject)[0][1] == subject


BAD_CALLS = [
    ("publish_message", ("", "o"), penstock.InvalidOption),
    ("publish_message", (None, "o"), penstock.WrongType),
    ("publish_message", (b"orders", "o"), penstock.WrongType),
    ("publish_message", ("orders", ""), penstock.InvalidOption),
    ("publish_message", ("orders", None), penstock.WrongType),
    ("publish_message", ("orders", "o", {"size": 17}), penstock.WrongType),
    ("publish_message", ("orders", "o", {"size": b"17"}), penstock.WrongType),
    ("publish_message", ("orders", "o", {17: "size"}), penstock.WrongType),
    ("publish_message", ("orders", "o", ["size"]), penstock.WrongType),
    ("publish_message", ("orders", "o", {"penstock-object": "x"}), penstock.InvalidOption),
    ("publish_message", ("x" * 5000, "o"), penstock.MessageTooLarge),
    ("publish_message", ("\ud800", "o"), penstock.InvalidOption),
    ("publish", ("", b"x"), penstock.InvalidOption),
    ("publish", ("orders", 17), penstock.WrongType),
    ("publish", ("orders", {"a": 1}), penstock.WrongType),
    ("get_message_by_sequence", (-1,), penstock.InvalidOption),
    ("get_message_by_sequence", (2**64,), penstock.InvalidOption),
    ("get_message_by_sequence", ("1",), penstock.WrongType),
    ("get_message_by_sequence", (True,), penstock.WrongType),
    ("get_messages_by_subject", ("", 1, 10), penstock.InvalidOption),
    ("get_messages_by_subject", ("orders", -1, 10), penstock.InvalidOption),
    ("get_messages_by_subject", ("orders", 2**64, 10), penstock.InvalidOption),
    ("get_messages_by_subject", ("orders", 1, -5), penstock.InvalidOption),
    ("get_messages_by_subject", ("orders", 1, 10**9), penstock.InvalidOption),
    ("get_messages_by_subject", ("orders", 1, 1.5), penstock.WrongType),
    ("get_latest_sequence_for_subject", ("",), penstock.InvalidOption),
    ("update_consumer_position", ("", "orders", 1), penstock.InvalidOption),
    ("update_consumer_position", ("billing", "", 1), penstock.InvalidOption),
    ("update_consumer_position", ("billing", "orders", -1), penstock.InvalidOption),
    ("update_consumer_position", ("billing", "orders", 2**63), penstock.InvalidOption),
    ("update_consumer_position", (None, "orders", 1), penstock.WrongType),
    ("get_consumer_position", ("billing", ""), penstock.InvalidOption),
    ("get_consumer_position", ("", "orders"), penstock.InvalidOption),
    ("get_consumers_by_subject", ("",), penstock.InvalidOption),
    ("delete_old_messages", (-1,), penstock.InvalidOption),
    ("delete_old_messages", (1e300,), penstock.InvalidOption),
    ("delete_old_messages", (float("nan"),), penstock.InvalidOption),
    ("delete_old_messages", ("1d",), penstock.WrongType),
    ("fetch", ("billing", "orders", 0), penstock.InvalidOption),
    ("fetch", ("", "orders"), penstock.InvalidOption),
    ("fetch", ("billing", ""), penstock.InvalidOption),
    ("ack", ("billing", "orders", 0), penstock.InvalidOption),
    ("ack", ("billing", "", 1), penstock.InvalidOption),
    ("ack", ("billing", "orders", 2**63), penstock.InvalidOption),
]


def named(case):
    name, arguments, _ = case
    return f"{name}{arguments!r:.40}".replace("x" * 20, "x")


@pytest.mark.parametrize("case", BAD_CALLS, ids=named)
def test_bad_input_gets_a_clear_error_and_changes_nothing(stream, case):
    name, arguments, error = case
    with pytest.raises(error) as raised:
        getattr(stream, name)(*arguments)
    assert isinstance(raised.value, penstock.UsageError)
    assert (stream.get_latest_sequence(), stream.get_consumer_count()) == (0, 0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"default_ttl": 0}, penstock.InvalidOption),
        ({"default_ttl": -1}, penstock.InvalidOption),
        ({"check_interval": 0}, penstock.InvalidOption),
        ({"channels": {"orders": 0}}, penstock.InvalidOption),
        ({"channels": {"": "1m"}}, penstock.InvalidOption),
        ({"channels": ["orders"]}, penstock.WrongType),
        ({"enabled": "yes"}, penstock.WrongType),
    ],
)
def test_a_ttl_that_lets_nothing_live_is_refused(stream, options, error):
    before = stream.get_ttl_status()
    with pytest.raises(error):
        stream.configure_ttl(**options)
    assert stream.get_ttl_status() == before


def test_a_missing_file_is_no_message(stream, tmp_path):
    with pytest.raises(penstock.PenstockError, match="nothing"):
        stream.publish("orders", tmp_path / "nothing")
    assert stream.get_latest_sequence() == 0


def test_bad_arguments_of_a_subscription_are_said_at_the_call(stream):
    with pytest.raises(penstock.InvalidOption):
        stream.subscribe("billing", "")
    with pytest.raises(penstock.InvalidOption):
        stream.subscribe("billing", "orders", start_sequence=0)
    with pytest.raises(penstock.InvalidOption):
        stream.subscribe("billing", "orders", timeout="soon")
    with pytest.raises(penstock.InvalidOption):
        stream.messages("")


def test_what_can_be_asked_for_and_is_not_there_is_nothing(stream):
    """S000-17, S000-18: nil and {} in the original, for every unsigned number of 64 bits."""
    stream.publish("orders", b"x")
    for sequence in (0, 2, 2**63 - 1, 2**63, 2**64 - 1):
        assert stream.get_message_by_sequence(sequence) is None
        assert stream.get_message_by_sequence_decoded(sequence) is None
        assert stream.get(sequence) is None
    for start in (2, 2**63 - 1, 2**63, 2**64 - 1):
        for subject in ("orders", "ord*", "*"):
            assert stream.get_messages_by_subject(subject, start, 10) == []
        assert stream.get_all_messages(start, 10) == []
        assert stream.get_new_messages_count("orders", since=start) == 0
    assert sequences(stream.get_messages_by_subject("orders", 0, 10)) == [1]
    assert stream.get_messages_by_subject("orders", 1, 0) == stream.get_all_messages(0, 0) == []
