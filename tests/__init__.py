"""Penstock's tests, one folder a kind.

unit/       mirrors the package; fast
contract/   one suite of behaviour, run against every way to use a store
crash/      a crash at every I/O call; real kill -9; damaged files
property/   hypothesis: generated input and stateful models
compat/     folders written by earlier versions and by other systems
e2e/        the real command, as a subprocess
lake/       archive tables, and the archive loop without Spark
spark/      reading and writing from PySpark
docs/       links and examples of the documentation
"""
