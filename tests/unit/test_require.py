import pytest

from tests.require import require


def test_available_part_goes_on():
    require("java", True, "never shown")


@pytest.mark.parametrize("required", ["", "git", "git, node"])
def test_missing_part_skips_with_its_reason(monkeypatch, required):
    monkeypatch.setenv("PENSTOCK_REQUIRE", required)
    with pytest.raises(pytest.skip.Exception, match="java: not on PATH"):
        require("java", False, "not on PATH")


@pytest.mark.parametrize("required", ["all", "java", "git, java"])
def test_missing_part_fails_where_it_is_required(monkeypatch, required):
    monkeypatch.setenv("PENSTOCK_REQUIRE", required)
    with pytest.raises(pytest.fail.Exception, match="not on PATH"):
        require("java", False, "not on PATH")
