"""Names of committed transactions: found by how they begin, forgotten only when all is in place."""

import pytest

import penstock
from penstock.errors import AlreadyCommitted
from penstock.log.staging import PlacedPiece
from penstock.state.transactions import Part


def nothing() -> None:
    pass


@pytest.fixture
def transactions(tmp_path):
    with penstock.open(tmp_path / "data") as store:
        yield store._transactions


def test_names_are_found_by_how_they_begin(transactions):
    for number, name in enumerate(["a/1", "a/2", "a", "b/1", "a/ÿ", "a/\U0010fffe"], 1):
        transactions.commit(number, name, (), (), 0, check=nothing)
    assert sorted(transactions.names("a/")) == ["a/1", "a/2", "a/ÿ", "a/\U0010fffe"]
    assert transactions.names("c") == []


def test_forgotten_name_can_be_used_again(transactions):
    transactions.commit(1, "a", (), (), 0, check=nothing)
    with pytest.raises(AlreadyCommitted):
        transactions.commit(2, "a", (), (), 0, check=nothing)
    transactions.forget(["a"])
    transactions.commit(2, "a", (), (), 0, check=nothing)
    assert transactions.names("") == ["a"]


def test_transaction_that_is_not_in_place_yet_is_not_forgotten(transactions):
    """Whoever finds its mark in a partition would take it for one that was never committed."""
    part = Part(7, 0, [PlacedPiece(1, 0, 0, 1, None, b"")])
    transactions.commit(1, "a", [part], (), 0, check=nothing)
    transactions.forget(["a"])
    assert transactions.names("a") == ["a"]
    transactions.finish(1, [(7, 0)])
    transactions.forget(["a"])
    assert transactions.names("a") == []


def test_refusal_at_the_last_moment_commits_nothing(transactions):
    def refuse() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        transactions.commit(1, "a", (), (), 0, check=refuse)
    assert transactions.names("") == []
