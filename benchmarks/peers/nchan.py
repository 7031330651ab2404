"""nchan: nginx with Debian's libnginx-mod-nchan; one worker, which keeps messages in its memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.program import HOST, Missing, find_program, free_port, server

NAME = "nchan"
_MODULE = Path("/usr/lib/nginx/modules/ngx_nchan_module.so")

#: Without pings: it would close the connections of clients that do not answer them.
_CONFIG = """
{user}
daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
load_module {module};
pid {folder}/nginx.pid;
error_log {folder}/error.log crit;
events {{ worker_connections 19000; multi_accept on; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_timeout 600s;
    keepalive_requests 1000000000;
    nchan_shared_memory_size 512M;
    nchan_message_timeout 1h;
    nchan_message_buffer_length 1000;
    server {{
        listen {host}:{port} backlog=4096;
        location = /pub {{
            nchan_publisher http;
            nchan_channel_id $arg_id;
        }}
        location = /sub {{
            nchan_subscriber websocket;
            nchan_channel_id $arg_ids;
            nchan_channel_id_split_delimiter ",";
            nchan_subscriber_first_message newest;
        }}
        location = /poll {{
            nchan_subscriber longpoll;
            nchan_channel_id $arg_id;
            nchan_subscriber_timeout 600s;
        }}
    }}
}}
"""


@contextmanager
def running(folder: Path) -> Iterator[tuple[int, int]]:
    """nginx runs until the block is left; its process and its port."""
    if not _MODULE.exists():
        raise Missing("nginx has no nchan (Debian: libnginx-mod-nchan)")
    program, port, folder = find_program("nginx"), free_port(), folder.resolve()
    user = "user root;" if os.geteuid() == 0 else ""
    config = folder / "nginx.conf"
    config.write_text(_CONFIG.format(user=user, module=_MODULE, folder=folder, host=HOST, port=port))
    with server([program, "-c", str(config), "-p", str(folder)], port, folder) as process:
        yield process.pid, port
