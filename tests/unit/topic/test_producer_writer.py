"""What only threads and interrupts can do to a producer's writer."""

from contextlib import suppress

import pytest

import penstock


@pytest.fixture
def topic(tmp_path):
    with penstock.open(tmp_path / "store") as store:
        yield store.create_topic("orders", sync="os")


def add_late(writer, value, key, seqno):
    """What a thread does that was overtaken between the check of a seqno and its message's turn."""
    writer.buffer.rows += value, key, None, (None, None, None, seqno)


def test_threads_that_overtake_each_other_are_told_and_lose_nothing_in_silence(topic):
    """Between the check of a seqno and its message's turn another thread may come with a larger one."""
    for late in ([(b"5", None, 5), (b"4", None, 4)], [(b"5", None, 5), (b"5", None, 5)]):
        writer = topic.writer(producer_id=f"shop-{late[1][2]}", linger=60)
        writer.write(b"1", seqno=1)
        for message in late:
            add_late(writer, *message)
        with pytest.raises(penstock.InvalidOption, match="out of order"):
            writer.flush()
        with suppress(penstock.PenstockError):
            writer.close()
    writer = topic.writer(producer_id="shop", linger=60)
    writer.write(b"2", seqno=2)
    writer.flush()
    add_late(writer, b"1", None, 1)
    with pytest.raises(penstock.InvalidOption, match="out of order"):
        writer.flush()
    with suppress(penstock.PenstockError):
        writer.close()
    assert [m.text for m in topic.read()] == ["2"]


def test_ctrl_c_between_write_and_ack_stores_once(topic, monkeypatch):
    """What is pending is tried again; the log knows that it has it, also when the writer counts."""
    for numbers in ((1, 2), (None, None)):
        writer = topic.writer(producer_id=f"shop-{numbers[0]}", linger=60)
        writer.write(b"a", seqno=numbers[0])
        appender = topic.open_topic.log(0).appender
        append = appender.append

        def interrupted(*args, append=append, **options):
            append(*args, **options)
            raise KeyboardInterrupt

        monkeypatch.setattr(appender, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
        monkeypatch.undo()
        writer.write(b"b", seqno=numbers[1])
        assert [r.duplicate for r in writer.flush()] == [True, False]
        writer.close()
    assert [(m.text, m.seqno) for m in topic.read()] == [("a", 1), ("b", 2)] * 2
