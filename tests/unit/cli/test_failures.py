"""The table from the error tree to exit codes."""

import ast
from pathlib import Path

import pytest

from penstock import errors
from penstock.cli.failures import Exit, exit_code, report

KINDS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, errors.PenstockError)
]


def make(kind):
    """An error of that kind, whatever its arguments are."""
    error = kind.__new__(kind)
    errors.PenstockError.__init__(error, "it went wrong", hint="do this")
    error.name = "orders"
    return error


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_a_code_that_says_what_to_do(kind):
    expected = Exit.FAILED
    if kind.retryable:
        expected = Exit.TRY_AGAIN
    elif issubclass(kind, errors.UsageError) and kind is not errors.MissingExtra:
        expected = Exit.USAGE
    elif issubclass(kind, errors.DataError):
        expected = Exit.UNHEALTHY
    assert exit_code(make(kind)) is expected


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_told_in_one_line_and_a_hint(kind, capsys):
    report(make(kind))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: it went wrong\nhint: ")
    assert err.count("\n") == 2


def test_other_errors_have_codes_too():
    assert exit_code(KeyboardInterrupt()) == 130
    assert exit_code(FileNotFoundError()) is Exit.FAILED


def test_hints_that_reach_the_user_speak_no_python(capsys):
    for kind in (
        errors.OffsetTrimmed,
        errors.Corrupt,
        errors.UnknownTopic,
        errors.NotAStore,
        errors.ReadOnly,
    ):
        report(make(kind))
    assert "=True" not in capsys.readouterr().err


def test_only_the_command_line_reads_the_environment():
    root = Path(__file__).parents[3] / "penstock"
    free = {"cli", "serve", "spark"}
    found = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if path.relative_to(root).parts[0] not in free
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
    ]
    assert found == []
