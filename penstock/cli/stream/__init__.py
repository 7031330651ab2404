"""`penstock stream`: messages under subjects in one sequence, their bodies, and who reads them."""

from __future__ import annotations

import typer

from penstock.cli.arguments import StoreOption
from penstock.cli.stream import engine
from penstock.cli.stream.consumers import consumers, position, sweep, ttl
from penstock.cli.stream.engine import migrate
from penstock.cli.stream.publish import publish
from penstock.cli.stream.read import get, list_messages, object_, stats, tail

app = typer.Typer(no_args_is_help=True)


@app.callback()
def group(store: StoreOption = "") -> None:
    """Publish under subjects, read them in order, and see who has read how far."""


app.command()(publish)
app.command()(get)
app.command("object")(object_)
app.command("list")(list_messages)
app.command()(tail)
app.command()(consumers)
app.command()(position)
app.command()(ttl)
app.command()(sweep)
app.command()(stats)
app.command()(migrate)
app.add_typer(engine.app, name="engine")
