"""Keys as bytes: text, arrays as canonical JSON, prefixes, and what is refused."""

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.keys import Match, checked_key, match, spoken_key, spoken_prefix

elements = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(st.characters(codec="utf-8"))
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
arrays = st.lists(elements, max_size=4)


@pytest.mark.parametrize(
    ("key", "stored"),
    [
        (None, None),
        ("", b""),
        ("schön", "schön".encode()),
        (b"\xff", b"\xff"),
        (bytearray(b"a"), b"a"),
        (["chat", 345], b'["chat",345]'),
        (("chat", 345), b'["chat",345]'),
        (["chat", "345"], b'["chat","345"]'),
        ([], b"[]"),
        (["ü", "/", '"', "\\", "\n"], '["ü","/","\\"","\\\\","\\n"]'.encode()),
        ([True, False, None], b"[true,false,null]"),
        ([["a", []], 1], b'[["a",[]],1]'),
        ([345.0, -0.0, 0.5], b"[345,0,0.5]"),
        ([-(2**63), 2**64 - 1], b"[-9223372036854775808,18446744073709551615]"),
    ],
)
def test_a_key_is_these_bytes(key, stored):
    """S002-15, W002-3."""
    assert checked_key(key) == stored


@given(arrays)
def test_an_array_can_be_read_back_and_has_one_spelling(array):
    stored = checked_key(array)
    assert json.loads(stored) == array
    assert checked_key(json.loads(stored)) == stored
    assert checked_key(msgspec.json.decode(stored)) == stored
    assert spoken_key(stored.decode()) == stored
    assert spoken_key(json.dumps(array)) == stored


@given(arrays, arrays)
def test_different_arrays_are_different_keys(one, other):
    """W002-3: 345 and "345", true and 1, nested and not."""
    assert (checked_key(one) == checked_key(other)) == (_spelt(one) == _spelt(other))


def _spelt(array):
    """An array such that equal ones are equal, and True is not 1."""
    if isinstance(array, list):
        return [_spelt(each) for each in array]
    number = isinstance(array, (int, float)) and not isinstance(array, bool)
    return ("number", array) if number else (type(array), array)


@pytest.mark.parametrize(
    ("key", "error", "says"),
    [
        (345, penstock.WrongType, "str, bytes or a list, not int"),
        ({"chat": 345}, penstock.WrongType, "not dict"),
        ([{"chat": 345}], penstock.WrongType, "not dict"),
        ([b"chat"], penstock.WrongType, "not bytes"),
        ([math.nan], penstock.InvalidOption, "nan"),
        ([math.inf], penstock.InvalidOption, "inf"),
        ([2**64], penstock.InvalidOption, "64 bits"),
        ([-(2**63) - 1], penstock.InvalidOption, "64 bits"),
        (["\ud800"], penstock.InvalidOption, "surrogate"),
        ("\ud800", penstock.InvalidOption, "surrogate"),
        (["x" * 4096], penstock.MessageTooLarge, "4100 bytes"),
    ],
)
def test_what_cannot_be_a_key_is_refused(key, error, says):
    with pytest.raises(error, match=says):
        checked_key(key)


def test_an_array_without_end_is_refused():
    array = []
    array.append(array)
    with pytest.raises(penstock.InvalidOption, match="32 levels"):
        checked_key(array)


@pytest.mark.parametrize("text", ["[", "[1", "[chat]", "[1] 2", '["a",]'])
def test_what_begins_like_an_array_and_is_none_is_refused(text):
    with pytest.raises(penstock.InvalidOption, match="not an array in JSON"):
        spoken_key(text)


def test_spoken_keys_and_prefixes():
    assert spoken_key('[ "chat", 345.0 ]') == b'["chat",345]'
    assert spoken_key("chat:345") == b"chat:345"
    assert spoken_prefix('["chat"]') == ["chat"]
    assert spoken_prefix("chat") == "chat"


@given(arrays, arrays)
def test_an_arrays_prefix_is_its_first_elements(prefix, array):
    stored = checked_key(array)
    is_prefix = _spelt(array[: len(prefix)]) == _spelt(prefix)
    assert match(prefixes=[prefix]).takes(stored) == is_prefix
    assert match(prefixes=[prefix]).takes(checked_key(prefix + array))


def test_an_arrays_prefix_ends_with_an_element():
    chat = match(prefixes=[["chat"]])
    assert chat.takes(b'["chat"]')
    assert chat.takes(b'["chat",345]')
    assert not chat.takes(b'["chatter"]')
    assert not chat.takes(b'["chatter",345]')
    assert not chat.takes(b"chat")
    assert not chat.takes(None)


def test_nothing_is_asked_for_twice():
    """W002-2."""
    assert match(["a", b"a", "b"]) == Match((b"a", b"b"))
    assert match(["ab", "b"], ["a", "ab", "abc"]) == Match((b"b",), (b"a",))
    assert match(["a"], [""]) == Match((), (b"",))


def test_nothing_cannot_be_asked_for():
    with pytest.raises(penstock.WrongType, match="not None"):
        match([None])
