"""The contract is worth something only if each interface is really used."""

import pytest

import penstock
import penstock.aio
from tests.contract.interfaces import Twin


def test_canary_each_interface_opens_its_own_store(interface, store):
    opened = store._target if isinstance(store, Twin) else store
    assert type(opened) is {"blocking": penstock.Store, "async": penstock.aio.Store}[interface.name]


def test_canary_an_error_of_either_interface_reaches_the_test(store):
    with pytest.raises(penstock.UnknownTopic) as unknown:
        store.topic("nothing")
    assert unknown.value.name == "nothing"
