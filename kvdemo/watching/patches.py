"""Attributes put in the place of others for a while, also of modules that are not imported yet; all of them put back."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

__all__ = ["Patches"]

NOT_THERE = object()

Make = Callable[[Any], Any]
"""The original -> what takes its place."""


class Patches:
    """Puts attributes in place and restores them; a module that comes later is patched when it has been executed.

    Nothing is imported for it: a program may set the environment before it imports torch, and may never import it.
    """

    def __init__(self) -> None:
        self.replaced: list[tuple[Any, str, object, object]] = []
        self._lock = threading.Lock()
        self._finder: _Finder | None = None

    def replace(self, owner: Any, name: str, make: Make) -> None:
        """Put make(original) in the place of this attribute, where there is one."""
        original = getattr(owner, name, NOT_THERE)
        if original is NOT_THERE:  # a name that is private to a library, and gone
            return
        before = vars(owner).get(name, NOT_THERE)
        made = make(original)
        with self._lock:
            self.replaced.append((owner, name, before, made))
            setattr(owner, name, made)

    def when_imported(self, patch_of: Mapping[str, Callable[[ModuleType], None]]) -> None:
        """Patch these modules: now where they are imported, else as soon as they are."""
        for name, patch in patch_of.items():
            if (module := sys.modules.get(name)) is not None:
                patch(module)
        waiting = {name: patch for name, patch in patch_of.items() if name not in sys.modules}
        if waiting:
            self._finder = _Finder(waiting)
            sys.meta_path.insert(0, self._finder)

    def restore(self) -> None:
        """Put every attribute back that is still ours; what somebody has put above it is left to him."""
        if self._finder is not None and self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        with self._lock:
            for owner, name, before, made in reversed(self.replaced):
                if vars(owner).get(name) is not made:
                    continue
                if before is NOT_THERE:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)
            self.replaced.clear()


class _Finder(importlib.abc.MetaPathFinder):
    """Stands before the other finders, asks them, and has a module patched once it has been executed."""

    def __init__(self, waiting: dict[str, Callable[[ModuleType], None]]) -> None:
        self._waiting = waiting

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        patch = self._waiting.get(fullname)
        if patch is None:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target) if finder is not self else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, spec, patch)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """The module's own loader, which is back in its place before the module's code runs."""

    def __init__(self, loader: Any, spec: importlib.machinery.ModuleSpec, patch: Callable[[ModuleType], None]) -> None:
        self._loader, self._spec, self._patch = loader, spec, patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._patch(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
