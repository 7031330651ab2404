"""`penstock serve`: live events for browsers and programs, over HTTP."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli import output
from penstock.cli.arguments import StoreOption, open_to_write
from penstock.cli.options import grouped
from penstock.errors import InvalidOption
from penstock.parse import topic_name


@dataclass(frozen=True)
class AccessOptions:
    """Who may connect, and how."""

    token_secret: Annotated[
        str | None,
        typer.Option(
            "--token-secret",
            envvar="PENSTOCK_TOKEN_SECRET",
            metavar="TEXT",
            show_envvar=True,
            help="Clients need a JWT signed with this (HS256).",
        ),
    ] = None
    jwt_key: Annotated[
        Path | None,
        typer.Option("--jwt-key", metavar="FILE", help="Clients need a JWT for this public key (RS256)."),
    ] = None
    allow_origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", metavar="ORIGIN", help="Pages from there may connect; repeatable."),
    ] = None
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="Answer to this name; repeatable."),
    ] = None
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Speak https and wss with this certificate (PEM)."),
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key, if it is not in that file.")
    ] = None


@grouped
def serve(
    access: AccessOptions,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 7367,
    host: Annotated[
        str, typer.Option("--host", help="Where to listen; beyond this machine only with tokens.")
    ] = "127.0.0.1",
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, max=256, metavar="N", help="Processes; else cores less one."),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC", help="Serve this; repeatable, the first by default."),
    ] = None,
    pages: Annotated[
        Path | None,
        typer.Option("--pages", metavar="FOLDER", help="Serve the pages in this folder besides."),
    ] = None,
    store: StoreOption = "",
) -> None:
    """Serve live events: push and subscribe over HTTP, SSE and WebSocket.

    Ctrl-C and SIGTERM release all clients, which come back with their cursor, and end.
    """
    from penstock.serve.workers import Supervisor, require_server_extra

    require_server_extra()
    from penstock.serve.server import ServeOptions

    options = ServeOptions(
        store=store,
        host=host,
        port=port,
        workers=workers or max((os.cpu_count() or 1) - 1, 1),
        topics=tuple(topic_name(each) for each in topic or ()),
        secret=access.token_secret,
        public_key=None if access.jwt_key is None else _read(access.jwt_key),
        origins=tuple(access.allow_origin or ()),
        hosts=tuple(access.allow_host or ()),
        pages=None if pages is None else str(pages),
        tls_certificate=None if access.tls_cert is None else str(access.tls_cert),
        tls_key=None if access.tls_key is None else str(access.tls_key),
    )
    open_to_write(store, create=True).close()  # a new one is announced; what is no store is refused here
    supervisor = Supervisor(options)
    supervisor.run(lambda address: output.put_text(f"serving {store} at {address}"))
    if supervisor.was_interrupted:
        raise KeyboardInterrupt


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"{path}: {error}", hint="--jwt-key takes a PEM file") from None
