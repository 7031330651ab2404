"""The doors through which tests reach the inside of Penstock, one file a part, and tools that tests share.

Only this folder and `tests/unit/<part>/` import internal modules: a rename inside the package touches the
part's unit tests and one file here.
"""
