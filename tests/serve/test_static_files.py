"""Files for browsers: our client, and the pages of a folder."""

import http.client

import pytest

import penstock
from tests.kit.patience import PATIENCE_S
from tests.kit.server import ServeOptions
from tests.serve.kit import SECRET, served


def get(server, path, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        connection.request(
            "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "kind", "holds"),
    [
        ("/penstock.js", "text/javascript", b"export class Events"),
        ("/penstock/lines.js", "text/javascript", b"WebSocket"),
        ("/penstock.d.ts", "application/typescript", b"export class Events"),
    ],
)
def test_our_client_is_served(server, path, kind, holds):
    status, body, headers = get(server, path)
    assert (status, holds in body, headers.get_content_type()) == (200, True, kind)
    assert headers["Cache-Control"] == "no-cache"
    assert get(server, path, If_None_Match=headers["ETag"])[:2] == (304, b"")
    assert get(server, path, If_None_Match='"other"')[0] == 200
    assert get(server, path, Origin="http://evil.example")[0] == 403
    own = f"http://127.0.0.1:{server.port}"
    assert get(server, path, Origin=own)[2]["Access-Control-Allow-Origin"] == own


def test_head_is_answered_as_get_without_a_body(server, paged):
    """Load balancers and link checkers ask so. The next request on the connection is answered too."""
    own = [(server, path) for path in ("/health", "/penstock.js", "/nothing", "/v1/events")]
    for asked, path in [*own, (paged, "/"), (paged, "/deep%20er/"), (paged, "/none.html")]:
        connection = http.client.HTTPConnection("127.0.0.1", asked.port, timeout=PATIENCE_S)
        found = {}
        for method in ("HEAD", "GET", "HEAD"):
            connection.request(method, path)
            answer = connection.getresponse()
            found[method] = answer.status, dict(answer.headers), answer.read()
        connection.close()
        if path == "/v1/events":  # there are no events without a body
            assert found["HEAD"][0::2] == (405, b"")
        else:
            assert found["HEAD"] == (*found["GET"][:2], b"")
            length = found["HEAD"][1].get("Content-Length")  # within an app it is that app's to say
            assert length in (None, str(len(found["GET"][2])))
            assert found["GET"][2]


@pytest.fixture(scope="module")
def paged(tmp_path_factory):
    """A folder of pages, with what must not be seen beside it."""
    root = tmp_path_factory.mktemp("pages")
    pages = root / "pages"
    (pages / "deep er").mkdir(parents=True)
    (pages / "index.html").write_text("<p>first")
    (pages / "deep er" / "index.html").write_text("<p>deep")
    (pages / "data.bin").write_bytes(b"\0\1")
    (pages / ".hidden").write_text("secret")
    (root / "outside.txt").write_text("secret")
    (pages / "link.txt").symlink_to(root / "outside.txt")
    with served(root / "data", "--pages", str(pages), "--token-secret", SECRET) as server:
        yield server


def test_pages_are_served_without_a_token(paged):
    status, body, headers = get(paged, "/")
    assert (status, body, headers.get_content_type()) == (200, b"<p>first", "text/html")
    assert get(paged, "/", If_None_Match=headers["ETag"])[0] == 304
    assert get(paged, "/deep%20er/")[1] == b"<p>deep"
    status, _, headers = get(paged, "/deep%20er")
    assert (status, headers["Location"]) == (308, "/deep%20er/")
    assert get(paged, "/data.bin")[2].get_content_type() == "application/octet-stream"
    assert get(paged, "/penstock.js")[0] == 200
    assert get(paged, "/v1/events?key=a")[0] == 401


@pytest.mark.parametrize(
    "path",
    [
        "/none", "/.hidden", "/../outside.txt", "/%2e%2e/outside.txt", "/deep%20er/..%2f..%2foutside.txt",
        "/link.txt", "//etc/passwd", "/%00", "/v1/none", "/data.bin/", "/..%5coutside.txt",
    ],
)  # fmt: skip
def test_nothing_else_is_seen(paged, path):
    status, body, _ = get(paged, path)
    assert (status, b"secret" in body) == (404, False)


def test_pages_that_are_no_folder_are_refused(tmp_path):
    with pytest.raises(penstock.InvalidOption, match="--pages"):
        ServeOptions(store=str(tmp_path / "data"), pages=str(tmp_path / "none"))


def test_a_store_among_the_pages_is_refused(tmp_path):
    """Its files would be there for everybody."""
    (tmp_path / "pages").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "pages")
    ServeOptions(store=str(tmp_path / "pages-data"), pages=str(tmp_path / "pages"))
    for store in ("pages/data", "pages", "link/data"):
        with pytest.raises(penstock.InvalidOption, match="everybody"):
            ServeOptions(store=str(tmp_path / store), pages=str(tmp_path / "pages"))
    with pytest.raises(penstock.InvalidOption, match="everybody"):
        ServeOptions(store=str(tmp_path), pages=str(tmp_path / "pages"))
