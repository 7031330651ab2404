"""A real S3 server on this machine, for tests: SeaweedFS, as PyPI has it.

@pytest.fixture(scope="session")
def s3():
    with s3_server() as server:
        yield server

server.table("orders")  →  "s3://…/orders"        server.options  →  what deltalake is told
"""

import json
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.parts import PARTS, program
from tests.require import require

_KEY, _SECRET = "penstock", "penstock-secret"
_IDENTITIES = {
    "identities": [
        {
            "name": "penstock",
            "credentials": [{"accessKey": _KEY, "secretKey": _SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
    ]
}
_START_S = 300


@dataclass(frozen=True)
class S3:
    """A server that runs, and a bucket in it."""

    endpoint: str
    bucket: str

    @property
    def options(self) -> dict[str, str]:
        """As `storage_options`."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def table(self, name: str = "") -> str:
        """A place that nobody has used."""
        return f"s3://{self.bucket}/{name or 'table'}-{uuid.uuid4().hex[:8]}"


class MissingServer(Exception):
    """The server is not installed."""


@contextmanager
def s3_server() -> Iterator[S3]:
    """Start a server, make a bucket in it, and end it at the end; a test without it is skipped."""
    require("seaweedfs")
    with started_server() as server:
        yield server


@contextmanager
def started_server() -> Iterator[S3]:
    """Start a server for something that is no test; raises `MissingServer` where there is none."""
    weed = program("weed")
    if weed is None:
        raise MissingServer(f"weed is not installed: {PARTS['seaweedfs'].how_to_install()}")
    with tempfile.TemporaryDirectory(prefix="penstock-s3-") as folder:
        process, port = _started(weed, Path(folder))
        try:
            server = S3(f"http://127.0.0.1:{port}", "lake")
            _make_bucket(server, process, Path(folder))
            yield server
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def _started(weed: str, folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    (folder / "data").mkdir()
    (folder / "identities.json").write_text(json.dumps(_IDENTITIES))
    # Each service also listens at its port + 10000.
    master, volume, filer, s3 = _free_ports(4)
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [
                weed, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder / 'data'}",
                "-master.telemetry=false", f"-master.port={master}", "-master.volumeSizeLimitMB=64",
                f"-volume.port={volume}", "-volume.max=20", "-filer", f"-filer.port={filer}", "-s3",
                f"-s3.port={s3}", "-s3.port.iceberg=0", "-s3.port.lance=0",
                f"-s3.config={folder / 'identities.json'}",
            ],
            stdout=log, stderr=log, cwd=folder, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    return process, s3


def _make_bucket(server: S3, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Once the server answers."""
    from pyarrow import fs

    from tests.kit.archives import s3_arguments

    deadline = time.monotonic() + _START_S
    while True:
        try:
            system = fs.S3FileSystem(
                **s3_arguments(server.options), allow_bucket_creation=True, retry_strategy=_one_attempt()
            )
            system.create_dir(server.bucket)
            with system.open_output_stream(f"{server.bucket}/ready") as ready:
                ready.write(b"yes")
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "log").read_text()[-2000:]) from None
            time.sleep(0.2)


def _one_attempt():
    from pyarrow.fs import AwsStandardS3RetryStrategy

    return AwsStandardS3RetryStrategy(max_attempts=1)


def _free_ports(count: int) -> list[int]:
    """Ports that are free now, and so are those 10000 above them."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as low, socket.socket() as high:
            low.bind(("127.0.0.1", 0))
            port = low.getsockname()[1] - 10_000
            try:
                high.bind(("127.0.0.1", port))
            except (OSError, OverflowError):
                continue
            if port > 1024 and port not in found:
                found.append(port)
    return found
