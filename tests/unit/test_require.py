"""A missing part skips a test on a laptop, and fails it where it is required."""

import pytest

from tests import require as requiring
from tests.parts import Part
from tests.require import absent, module, require

MISSING = "the program no-such-program not found: apt-get install nothing"


@pytest.fixture(autouse=True)
def table(monkeypatch):
    """One part that is there, and one that is not."""
    table = {
        "here": Part("here", programs=("sh",), package="dash"),
        "json": Part("json", modules=("json",), extra="dev"),
        "nothing": Part("nothing", programs=("no-such-program",), package="nothing"),
    }
    monkeypatch.setattr(requiring, "PARTS", table)
    monkeypatch.setenv("PATH", "/bin:/usr/bin")


def test_available_parts_go_on():
    require("here", "json")
    assert module("json").loads("1") == 1
    assert module("json.decoder", "json").__name__ == "json.decoder"


@pytest.mark.parametrize("required", ["", "git", "git, node"])
def test_missing_part_skips_with_its_reason(monkeypatch, required):
    monkeypatch.setenv("PENSTOCK_REQUIRE", required)
    with pytest.raises(pytest.skip.Exception, match=f"nothing: {MISSING}"):
        require("here", "nothing")
    with pytest.raises(pytest.skip.Exception, match=f"nothing: {MISSING}"):
        module("json", "nothing")


@pytest.mark.parametrize("required", ["all", "nothing", "git, nothing"])
def test_missing_part_fails_where_it_is_required(monkeypatch, required):
    monkeypatch.setenv("PENSTOCK_REQUIRE", required)
    with pytest.raises(pytest.fail.Exception, match=MISSING):
        require("here", "nothing")
    with pytest.raises(pytest.fail.Exception, match="found out"):
        absent("nothing", "found out")


def test_part_that_the_table_does_not_know_is_refused():
    with pytest.raises(KeyError):
        require("unheard-of")
    with pytest.raises(AssertionError, match=r"no line in tests/parts\.py"):
        absent("unheard-of", "why")
