"""A store that was made for a pipeline goes when that is refused, unless somebody else has come to use it."""

from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from penstock.cli.pipeline_progress import Watched, sinks_made


@pytest.fixture
def refuse(tmp_path):
    """Make a store for a pipeline, let something be done meanwhile, then refuse the pipeline."""

    def refuse(place: Path, meanwhile: Callable[[], object]) -> None:
        with sinks_made(source, "orders", "orders", create=True, watched=Watched(), into=str(place)):
            meanwhile()
            raise penstock.InvalidOption("refused")

    with penstock.open(tmp_path / "data") as source:
        source.create_topic("orders")
        yield refuse


def test_a_store_in_which_others_made_a_topic_meanwhile_stays(refuse, tmp_path):
    place = tmp_path / "new"

    def meanwhile() -> None:
        with penstock.open(place) as other:
            other.create_topic("theirs").write(b"x")

    with pytest.raises(penstock.InvalidOption, match="refused"):
        refuse(place, meanwhile)
    with penstock.open(place, create=False) as other:
        assert [each.name for each in other.topics()] == ["theirs"]


def test_a_store_that_others_have_open_stays(refuse, tmp_path):
    place, others = tmp_path / "new", []
    with pytest.raises(penstock.InvalidOption, match="refused"):
        refuse(place, lambda: others.append(penstock.open(place)))
    with others[0] as other:
        other.create_topic("theirs").write(b"x")
    with penstock.open(place, create=False) as other:
        assert [each.name for each in other.topics()] == ["theirs"]


def test_a_store_that_nobody_uses_goes(refuse, tmp_path):
    with pytest.raises(penstock.InvalidOption, match="refused"):
        refuse(tmp_path / "new", lambda: None)
    assert not (tmp_path / "new").exists()


def test_what_a_store_held_that_had_lost_its_list_of_topics_stays(refuse, tmp_path):
    place = tmp_path / "lost"
    with penstock.open(place) as other:
        other.create_topic("theirs").write(b"x")
    for each in place.glob("state.db*"):
        each.unlink()
    with pytest.raises(penstock.PenstockError):
        refuse(place, lambda: None)
    assert list(place.glob("topics/theirs/parts/*/*.data"))
