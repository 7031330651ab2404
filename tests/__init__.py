"""Penstock's tests, one folder a kind.

kit/        doors to the inside of the package, one file a part; what tests share
unit/       mirrors the package; fast. Its folders and kit/ alone import internal modules
contract/   one suite of behaviour, run against every way to use a store
chaos/      faults at random over everything at once; `make chaos` runs them for as long as one likes
crash/      a crash at every I/O call; real kill -9; damaged files
property/   hypothesis: generated input and stateful models
compat/     folders written by earlier versions and by other systems
e2e/        the real command, as a subprocess
exchange/   go-diskq folders, files and copies, in and out; killed and started again
serve/      the public port, over real sockets
browser/    the client for pages, in a real browser
payloads/   bodies outside the log: files and S3
lake/       archive tables, and the archive loop without Spark
spark/      reading and writing from PySpark
docs/       links and examples of the documentation

parts.py    what tests need besides Python, for `require` and for `make test`, which installs it
require.py  skip a test whose part is missing, or fail it in CI
"""
