"""Headers of a frame come back as they were given, however alike they are, each with its message alone."""

import copy
import json
import pickle
from contextlib import suppress

import pytest

import penstock
from penstock.headers import SharedHeaders
from penstock.log.frame import walk
from tests.kit.frames import encode

SHAPES = {
    "equal": [{"source": "shop", "trace": b"\xff"}] * 20,
    "equal names": [{"source": "shop", "trace": str(n)} for n in range(20)],
    "three equal names": [{"a": str(n), "b": "x", "c": str(n * n)} for n in range(20)],
    "equal names, text or not": [{"source": str(n) if n % 2 else b"%d" % n} for n in range(20)],
    "equal values, other names": [{f"n{n}": "v"} for n in range(20)],
    "as many, shifted": [{"ab": "c"} if n % 2 else {"a": "bc"} for n in range(20)],
    "differing counts": [{f"n{k}": "v" for k in range(n % 4)} or None for n in range(20)],
    "none in front": [None] * 5 + [{"a": "b"}] * 15,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("first", "stop"), [(0, 20), (3, 11), (19, 20), (5, 6)])
def test_headers_come_back_as_they_were(shape, first, stop):
    given = SHAPES[shape]
    draft = encode([b"value"] * 20, created=1, headers=given)
    data = draft.header(base=0, written_at=2, synced=0, salt=3) + bytes(draft.body)
    ((_, frame),) = walk(data)
    found = frame.headers(first, stop)
    assert [dict(each) for each in found] == [each or {} for each in given[first:stop]]
    for place, changed in enumerate(found):
        with suppress(TypeError, penstock.UsageError):  # those that messages share cannot be changed
            changed["changed"] = "yes"
        others = [*found[:place], *found[place + 1 :]]
        assert not any("changed" in each for each in others), "each message has its own"
        if "changed" in changed:
            del changed["changed"]


def test_shared_headers_are_a_dict_that_cannot_be_changed():
    shared = SharedHeaders(source="shop", trace="1")
    assert json.dumps(shared) == '{"source": "shop", "trace": "1"}'
    for change in (
        lambda: shared.update(a="b"),
        lambda: shared.setdefault("a", "b"),
        lambda: shared.pop("source"),
        lambda: shared.__setitem__("a", "b"),
        lambda: shared.__delitem__("source"),
        lambda: shared.__ior__({"a": "b"}),
        shared.popitem,
        shared.clear,
    ):
        with pytest.raises(penstock.UsageError, match=r"dict\(headers\)"):
            change()
    assert shared == {"source": "shop", "trace": "1"}
    for own in (shared.copy(), copy.copy(shared), copy.deepcopy(shared), pickle.loads(pickle.dumps(shared))):
        assert type(own) is dict
        assert own == shared
    assert shared | {"a": "b"} == {"source": "shop", "trace": "1", "a": "b"}
