"""Known models, from assets/models: geometry only, each with its source. Reading takes milliseconds and no torch.

An entry keeps the config it was traced from, and the footprints that came out. `python -m kvdemo.planner.catalog` traces
every entry again and rewrites the footprints; a test compares them.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from functools import cache
from typing import Any

from kvdemo.errors import InvalidRequest
from kvdemo.facts.plans import Architecture, FixedState, LayerFootprint, StoredWeights, TokenStream
from kvdemo.shipped import assets_folder

__all__ = ["architecture", "config", "entry", "names", "packed", "source"]

FOLDER = assets_folder() / "models"
ON_HUB = re.compile(r"https://[^/]+/([^/]+/[^/]+)/blob/")
DEFAULTS = {**asdict(LayerFootprint(index=0, kind="full")), "kind": ""}  # a kind is always written down


def names() -> list[str]:
    """The known models, by family and size."""
    return list(_entries())


def entry(name: str) -> dict[str, Any]:
    """What the file of a known model says; InvalidRequest("model", ...) for an unknown one."""
    try:
        return _entries()[name]
    except (KeyError, TypeError) as error:
        shown = name[:60] if isinstance(name, str) else type(name).__name__
        raise InvalidRequest("model", f"{shown!r} is not one of the known models: {', '.join(names())}") from error


def config(name: str) -> dict[str, Any]:
    """The config of a known model, as published, without what says nothing about its geometry."""
    found: dict[str, Any] = entry(name)["config"]
    return found


def source(name: str) -> str:
    """Where the config of a known model was published."""
    return str(entry(name)["source"])


def architecture(name: str) -> Architecture:
    """The geometry of a known model, as it was traced."""
    return _unpacked(name, entry(name)["traced"], source(name))


def packed(found: Architecture) -> dict[str, Any]:
    """An architecture as plain values: each different layer once, then which of them each layer is."""
    kinds: list[dict[str, Any]] = []
    order: list[int] = []
    for layer in found.layers:
        fields = {key: value for key, value in asdict(layer).items() if key != "index" and value != DEFAULTS[key]}
        if fields not in kinds:
            kinds.append(fields)
        order.append(kinds.index(fields))
    rest = {key: value for key, value in asdict(found).items() if key not in ("name", "layers", "loaded", "hub_id")}
    if rest["weights"] is None:
        del rest["weights"]
    return json.loads(json.dumps({**rest, "kinds": kinds, "order": order}))  # type: ignore[no-any-return]


def _unpacked(name: str, traced: dict[str, Any], published: str) -> Architecture:
    layers = []
    for index, kind in enumerate(traced["order"]):
        fields = dict(traced["kinds"][kind])
        fields["fixed"] = tuple(FixedState(**state) for state in fields.get("fixed", ()))
        fields["streams"] = tuple(TokenStream(**stream) for stream in fields.get("streams", ()))
        layers.append(LayerFootprint(index=index, **fields))
    rest = {key: value for key, value in traced.items() if key not in ("kinds", "order")}
    rest["notes"] = tuple(rest["notes"])
    rest["weights"] = StoredWeights(**rest["weights"]) if "weights" in rest else None
    on_hub = ON_HUB.match(published)
    return Architecture(name=name, layers=tuple(layers), hub_id=on_hub[1] if on_hub else None, **rest)


@cache
def _entries() -> dict[str, dict[str, Any]]:
    """Every file of the folder, families in alphabetical order, each from its smallest model to its largest."""
    found = [json.loads(path.read_text("utf-8")) for path in FOLDER.glob("*.json")]
    found.sort(key=lambda entry: (re.split(r"[\W\d]", entry["name"].lower())[0], entry["traced"]["num_parameters"]))
    return {entry["name"]: entry for entry in found}


def main() -> None:
    """Trace every entry again and rewrite its footprints."""
    from kvdemo.planner.architecture import from_config

    for path in sorted(FOLDER.glob("*.json")):
        found = json.loads(path.read_text("utf-8"))
        found["traced"] = packed(from_config(found["config"], name=found["name"]))
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
        print(f"{found['name']}: {found['traced']['num_parameters']:,} parameters")


if __name__ == "__main__":
    main()
