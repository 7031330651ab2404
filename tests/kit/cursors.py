"""Cursors of events, as tests look at them."""


def id_of(cursor: str) -> str:
    """A cursor as `<epoch>.<id>`, without the moment between them."""
    epoch, _, number = cursor.split(".")
    return f"{epoch}.{number}"
