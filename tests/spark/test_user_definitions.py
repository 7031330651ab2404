"""Decorating, naming, loading and setting pipelines: all that needs no Spark."""

import sys
from datetime import datetime

import pytest

import penstock
from tests.kit.pipelines import load
from tests.kit.stores import claim

IMPORTS = "import penstock\n"
ONE = (
    '@penstock.pipeline(source="orders", sink="out")\ndef {name}(orders, *, least: int = 1): return orders\n'
)


def test_decorated_function_is_still_the_function():
    @penstock.pipeline(source="orders", sink="out", tables={"t": "t.csv"}, name="given")
    def double(orders, t, *, factor: int = 2):
        """Twice as much."""
        return orders * factor + t

    assert double(4, 1) == double(4, t=1, factor=2) == 9
    assert (double.name, double.__name__, double.__doc__) == ("given", "double", "Twice as much.")
    assert list(double.parameters) == ["factor"]


WRONG = {
    "loop": ({"source": ["a", "b"], "sink": "b"}, "never come to an end"),
    "no source": ({"source": []}, "needs a source"),
    "topic name": ({"source": "a/b"}, "cannot be the name of a topic"),
    "trigger": ({"source": "a", "trigger": "often"}, "not a duration"),
    "output": ({"source": "a", "output": "complete"}, "output='complete'"),
    "starting": ({"source": "a", "starting": "12"}, "starting='12' is not understood"),
    "consumer": ({"source": "a", "consumer": "a b"}, "cannot be the name of a consumer"),
    "tables": ({"source": "a", "tables": ["t"]}, "tables is a dict"),
    "too few arguments": ({"source": ["a", "b"]}, "takes 1 positional arguments, but the pipeline has 2"),
    "table nobody takes": ({"source": "a", "tables": {"t": "t.csv"}}, "no argument 't'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_definition_is_refused_where_it_stands(name):
    options, told = WRONG[name]
    with pytest.raises(penstock.UsageError, match=told):

        @penstock.pipeline(**options)
        def function(first):
            return first


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda a, least: a, "neither a source nor a table"),
        (lambda *streams: streams, r"takes \*streams"),
        (lambda a, **rest: a, r"takes \*\*rest"),
        (str, "goes on a function"),
    ],
)
def test_function_that_cannot_be_called_is_refused(function, told):
    with pytest.raises(penstock.UsageError, match=told):
        penstock.pipeline(source="a", name="x")(function)


def test_where_the_first_run_begins():
    def starting(place):
        return penstock.pipeline(source="a", name="x", starting=place)(lambda a: a).definition.starting

    assert starting("latest") == {"startingOffsets": "latest"}
    assert starting(datetime.fromisoformat("2030-01-01T00:00:00Z")) == {"startingTimestamp": "1893456000000"}
    assert list(starting("2h")) == ["startingTimestamp"]


@penstock.pipeline(source="a", sink="b", tables={"t": "t.csv"})
def typed(
    a, *, t, whole: int = 1, part=0.5, on: bool = False, word: "str | None" = None, many: list[int] = ()
):
    return a


def test_parameters_are_understood_by_their_types():
    given = {"whole": "7", "part": "2", "on": "true", "word": "x", "many": "[1, 2]"}
    chosen, tables = typed._chosen(given)
    assert chosen == {"whole": 7, "part": 2.0, "on": True, "word": "x", "many": [1, 2]}
    assert tables["t"].endswith("/tests/spark/t.csv")  # beside the file that names it
    assert typed._chosen({"t": "other.csv", "whole": 3}) == ({"whole": 3}, {"t": "other.csv"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"whole": "x"}, "'whole' is int, not 'x'"),
        ({"on": "maybe"}, "'on' is bool"),
        ({"many": "1,2"}, "'many' is list"),
        ({"other": "1"}, "no parameter 'other'"),
        ({"t": 5}, "'t' is given by a path"),
    ],
)
def test_parameter_that_does_not_fit_is_refused(given, told):
    with pytest.raises(penstock.UsageError, match=told):
        typed._chosen(given)


def test_parameter_without_a_default_is_needed():
    def function(a, *, least: int):
        return a

    needy = penstock.pipeline(source="a")(function)
    with pytest.raises(penstock.InvalidOption, match="'least' is needed") as caught:
        needy.run("nowhere")
    assert caught.value.hint == "--set least=int"


@pytest.fixture
def file(tmp_path):
    def written(text, name="mine.py"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return written


def test_file_with_one_pipeline_or_several(file):
    one = file(IMPORTS + ONE.format(name="first"))
    assert load(one).name == load(f"{one}:first").name == "first"
    two = file(IMPORTS + ONE.format(name="first") + ONE.format(name="second"), "two.py")
    assert load(f"{two}:second").name == "second"
    with pytest.raises(penstock.InvalidOption, match="several pipelines: first, second"):
        load(two)
    with pytest.raises(penstock.InvalidOption, match="no pipeline 'third'") as caught:
        load(f"{two}:third")
    assert caught.value.hint == "it has first, second"


def test_file_finds_its_neighbours(file):
    file(IMPORTS + ONE.format(name="shared"), "my_neighbour.py")
    assert load(file("from my_neighbour import shared\n")).name == "shared"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1\n", "has no pipeline"),
        ("import nothing_like_it\n", "ModuleNotFoundError: No module named 'nothing_like_it' (line 1)"),
        ("\ndef f(:\n", "SyntaxError"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        (IMPORTS + ONE.replace('"out"', '"orders"').format(name="f"), "never come to an end"),
    ],
)
def test_file_that_cannot_be_used_is_told(file, text, told):
    with pytest.raises(penstock.UsageError) as caught:
        load(file(text))
    assert told in str(caught.value)
    with pytest.raises(penstock.InvalidOption, match="there is no file"):
        load("nowhere.py")


def test_missing_pyspark_is_told_with_the_command_that_installs_it(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(penstock.MissingExtra, match=r'pip install "penstock\[spark\]"'):
        load(file("import pyspark.sql\n"))
    with pytest.raises(penstock.MissingExtra):
        load(file(IMPORTS + ONE.format(name="first"))).run("nowhere")


def test_topics_tables_and_names_are_checked_before_spark_starts(tmp_path):
    own = penstock.pipeline(source="orders", sink="out", tables={"t": "t.csv"}, name="own")(lambda o, t: o)
    with penstock.open(tmp_path / "data") as store:
        with pytest.raises(penstock.UnknownTopic, match="'orders'"):
            own.run(store)
        store.create_topic("orders")
        with pytest.raises(penstock.UnknownTopic, match="'out'"):
            own.run(store)
        store.create_topic("out")
        with pytest.raises(penstock.InvalidOption, match=r"table 't' is not there"):
            own.run(store)
        (tmp_path / "t.txt").write_text("")
        with pytest.raises(penstock.InvalidOption, match="of no kind that is known"):
            own.run(store, parameters={"t": str(tmp_path / "t.txt")})
        (tmp_path / "t.csv").write_text("a\n")
        with claim(store, "own", kind="run", identity={}):
            with pytest.raises(penstock.PipelineRunning, match="by process"):
                own.run(store, parameters={"t": str(tmp_path / "t.csv")})
    with pytest.raises(penstock.NotAStore):
        own.run(tmp_path / "nothing")


def test_rows_for_a_test_are_given_by_topic():
    with pytest.raises(penstock.InvalidOption, match="does not read 'payments'"):
        typed.test({"payments": []}, t=[])
    with pytest.raises(penstock.WrongType, match="rows are given by topic"):
        typed.test([b"1"], t=[])
