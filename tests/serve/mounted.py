"""An app of somebody's own with live events mounted in it, on uvicorn.

    python mounted.py FOLDER PORT [OPTIONS]

OPTIONS are those of `penstock.asgi`, in JSON, and `at`: where it is mounted.
"""

import json
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import penstock


class Announced(uvicorn.Server):
    """Says its address when it answers."""

    async def startup(self, sockets=None):
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(f"serving at http://127.0.0.1:{port}", flush=True)


def main(folder: str, port: str, options: str = "{}") -> None:
    given = json.loads(options)
    at = given.pop("at", "")
    with penstock.open(folder) as store:
        app = Starlette(
            routes=[
                Route("/own", lambda request: PlainTextResponse("the app's own")),
                Mount(at, penstock.asgi(store, **given)),
            ]
        )
        config = uvicorn.Config(
            app, port=int(port), ws="wsproto", log_level="warning", timeout_graceful_shutdown=2
        )
        Announced(config).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
