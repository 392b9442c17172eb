"""The observer in an environment of its own choosing: PYTHON this-file --record FILE [--cache KEY] [--ids] -- [-m] PROGRAM ...

It is started by its path, from an environment that need not have kvdemo, and puts nothing on the path of imports. What it
has seen goes to FILE as JSON.
"""

import sys

OLDEST = (3, 11)


def _package_of(path: str) -> None:
    """Make `import kvdemo` mean the package that this file lies in, without its neighbours."""
    import importlib.util
    import os

    folder = os.path.dirname(os.path.dirname(os.path.abspath(path)))
    init = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location("kvdemo", init, submodule_search_locations=[folder])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kvdemo"] = module
    spec.loader.exec_module(module)


def main(arguments: list) -> int:  # type: ignore[type-arg] # read by any Python 3, before its version is known
    if sys.version_info < OLDEST:
        version = ".".join(map(str, sys.version_info[:2]))
        sys.stderr.write("kvdemo: this is Python " + version + "; watching needs 3.11 or newer\n")
        return 2
    if "kvdemo" not in sys.modules:
        _package_of(__file__)
    from kvdemo.watching.elsewhere import observe_here

    return observe_here(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
