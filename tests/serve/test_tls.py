"""https and wss with a certificate made for the test; and files that are none."""

import datetime
import ipaddress
import json
import socket
import ssl
import subprocess
import sys

import pytest

import penstock
from penstock.client.events import Events
from penstock.errors import InvalidOption
from tests.kit.patience import PATIENCE_S
from tests.kit.server import ServeOptions
from tests.require import require
from tests.serve.kit import ROOT, Served, Ws, read_all, served
from tests.serve.test_http import answers, post


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 signed by itself, and its key."""
    require("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return folder / "cert.pem", folder / "key.pem"


class Encrypted(Served):
    """What connects to it speaks TLS."""

    trust: ssl.SSLContext

    def connect(self, receive_bytes: int | None = None) -> socket.socket:
        return self.trust.wrap_socket(super().connect(receive_bytes), server_hostname="127.0.0.1")


@pytest.fixture(scope="module")
def encrypted(certificate, tmp_path_factory):
    cert, key = certificate
    folder = tmp_path_factory.mktemp("encrypted") / "data"
    options = ("--workers", "1", "--tls-cert", str(cert), "--tls-key", str(key))
    with served(folder, *options, kind=Encrypted) as server:
        server.trust = ssl.create_default_context(cafile=cert)
        yield server


def test_pushes_and_a_websocket_over_tls(encrypted):
    heard = Ws(encrypted, ["k"])
    with encrypted.connect() as connection:
        bodies = [json.dumps({"key": "k", "data": n}) for n in range(20)]
        connection.sendall(b"".join(map(post, bodies[:-1])) + post(bodies[-1], "Connection: close\r\n"))
        assert [status for status, _ in answers(read_all(connection))] == [200] * 20
    assert [event["data"] for event in heard.until(20)] == list(range(20))
    heard.close()


def test_a_client_that_stops_reading_over_tls_gets_everything_later(encrypted):
    heard = Ws(encrypted, ["slow"], receive_bytes=4096)
    with penstock.open(encrypted.folder) as store:
        for first in range(0, 5000, 500):
            store.events().push_many(("slow", [n, "x" * 100]) for n in range(first, first + 500))
    assert [data[0] for data in (event["data"] for event in heard.until(5000, 60))] == list(range(5000))
    heard.close()


def test_who_speaks_no_tls_is_not_answered(encrypted):
    with socket.create_connection(("127.0.0.1", encrypted.port), timeout=PATIENCE_S) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP" not in read_all(plain)
    with (
        pytest.raises(ssl.SSLCertVerificationError),
        socket.create_connection(("127.0.0.1", encrypted.port), timeout=PATIENCE_S) as plain,
    ):
        ssl.create_default_context().wrap_socket(plain, server_hostname="127.0.0.1")


def test_the_python_client_speaks_tls(encrypted, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    events = Events(f"https://127.0.0.1:{encrypted.port}")
    events.push("client", "hello")
    with events.subscribe(["client"], rewind=1) as heard:
        assert next(iter(heard)).data == "hello"


def test_files_that_are_no_certificate_are_refused(tmp_path, certificate):
    cert, key = map(str, certificate)
    for given in ((str(tmp_path / "missing.pem"), None), (cert, None), (key, None), (None, key), (key, cert)):
        with pytest.raises(InvalidOption) as refused:
            ServeOptions(store=str(tmp_path / "data"), tls_certificate=given[0], tls_key=given[1])
        assert "--tls-cert" in refused.value.hint


def test_a_folder_that_is_no_store_is_refused_and_a_new_one_announced(tmp_path):
    (tmp_path / "file").write_text("x")
    refused = subprocess.run(
        [sys.executable, "-m", "penstock", "-s", str(tmp_path), "serve", "--port", "0"],
        cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is not a store" in refused.stderr
    assert "a worker" not in refused.stderr
    with served(tmp_path / "new") as server:
        assert f"created store {tmp_path / 'new'}" in server.said()
