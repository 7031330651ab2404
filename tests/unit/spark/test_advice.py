"""What a session is told that could be faster."""

from penstock.spark.session import advise_session
from tests.require import require


def test_a_slow_session_is_told_once(monkeypatch, tmp_path, caplog):
    require("spark")

    class Conf:
        def get(self, name: str, default: str) -> str:
            return default

    class Session:
        conf = Conf()

    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    for _ in range(2):
        advise_session(Session())
    assert [record.name for record in caplog.records] == ["penstock.spark"]
    assert "spark.python.unix.domain.socket.enabled=true" in caplog.text
