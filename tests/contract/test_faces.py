"""The contract is worth something only if each face is really used."""

import pytest

import penstock
import penstock.aio
from tests.contract.faces import Twin


def test_canary_each_face_opens_its_own_store(face, store):
    opened = store._target if isinstance(store, Twin) else store
    assert type(opened) is {"blocking": penstock.Store, "async": penstock.aio.Store}[face.name]


def test_canary_an_error_of_either_face_reaches_the_test(store):
    with pytest.raises(penstock.UnknownTopic) as unknown:
        store.topic("nothing")
    assert unknown.value.name == "nothing"
