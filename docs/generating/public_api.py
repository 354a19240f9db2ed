"""The list of the Rust crate's public items, one a line, from rustdoc's JSON.

A change of this list is a change of what semantic versioning covers. `make public-api` has rustdoc
write the JSON. An item that no example of its own or of its type uses is an error; so is a type
without one.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from generating import DOCS, data

CRATE = "cai_bridge"
LIST = DOCS / "public-api.txt"
# Traits that the compiler derives from a type's fields.
AUTOMATIC = {"Send", "Sync"}
INTERNAL = {"StructuralPartialEq", "TrivialClone"}
TYPES = {"struct", "enum", "trait", "type_alias"}


def examples(item: dict[str, Any]) -> str:
    """Return the examples in an item's documentation that compile."""
    blocks = (item.get("docs") or "").split("```")[1::2]
    return "".join(block for block in blocks if not block.startswith("compile_fail"))


def is_hidden(item: dict[str, Any]) -> bool:
    """Return whether the documentation leaves an item out."""
    return any("doc(hidden)" in str(attribute) for attribute in item["attrs"])


class Lister:
    """The items of a crate that its root reaches."""

    def __init__(self, crate: dict[str, Any]) -> None:
        self.index, self.lines = crate["index"], set[str]()
        self.without_example = set[str]()
        self.examples: dict[str, str] = {}
        for item in self.index.values():
            known = self.examples.get(str(item["name"]), "")
            self.examples[str(item["name"])] = known + examples(item)
        self._module(self.index[str(crate["root"])], CRATE)

    def _module(self, module: dict[str, Any], path: str) -> None:
        for number in module["inner"]["module"]["items"]:
            item = self.index.get(str(number))
            if item is None or item["visibility"] != "public" or is_hidden(item):
                continue
            if "use" in item["inner"]:
                use = item["inner"]["use"]
                target = self.index.get(str(use["id"]))
                if target is None:
                    self.lines.add(f"pub use {use['source']} as {path}::{use['name']}")
                else:
                    self._item(target, f"{path}::{use['name']}")
            else:
                self._item(item, f"{path}::{item['name']}")

    def _item(self, item: dict[str, Any], path: str) -> None:
        (kind,) = item["inner"]
        inner = item["inner"][kind]
        if kind == "module":
            self._module(item, path)
            return
        self._check_example(item, path, examples(item))
        if kind == "function":
            self.lines.add(f"{self._function(inner)} {path}{self._signature(inner)}")
            return
        self.lines.add(f"{kind} {path}{self._generics(inner)}")
        for number in inner.get("items", []) if kind == "trait" else []:
            self._member(self.index.get(str(number)), path, examples(item))
        fields = inner.get("kind", {}).get("plain", {}) if kind == "struct" else {}
        for number in fields.get("fields", []) if isinstance(fields, dict) else []:
            field = self.index.get(str(number))
            if field is not None:
                self.lines.add(
                    f"field {path}::{field['name']}: {self._type(field['inner']['struct_field'])}"
                )
        for number in inner.get("variants", []):
            variant = self.index.get(str(number))
            if variant is not None:
                self.lines.add(f"variant {path}::{variant['name']}")
        for number in inner.get("impls", []) if isinstance(inner, dict) else []:
            self._implementation(self.index.get(str(number)), path, examples(item))

    def _check_example(self, item: dict[str, Any], path: str, shown: str) -> None:
        elsewhere = re.findall(r"See \[`(?:\w+::)*(\w+)`\]", item.get("docs") or "")
        shown += "".join(self.examples.get(name, "") for name in elsewhere)
        is_type = next(iter(item["inner"])) in TYPES
        if not (shown if is_type else re.search(rf"\b{item['name']}\b", shown)):
            self.without_example.add(path)

    def _implementation(self, item: dict[str, Any] | None, path: str, shown: str) -> None:
        if item is None or item["inner"]["impl"]["blanket_impl"] is not None:
            return
        inner = item["inner"]["impl"]
        trait = (inner["trait"] or {}).get("path")
        if trait in INTERNAL or (inner["is_synthetic"] and trait not in AUTOMATIC):
            return
        if inner["trait"] is not None:
            no = "!" if inner["is_negative"] else ""
            self.lines.add(f"impl {no}{self._path(inner['trait'])} for {path}")
            return
        for number in inner["items"]:
            self._member(self.index.get(str(number)), path, shown)

    def _member(self, item: dict[str, Any] | None, path: str, shown: str) -> None:
        if item is None or is_hidden(item) or item["visibility"] not in ("public", "default"):
            return
        self._check_example(item, f"{path}::{item['name']}", examples(item) + shown)
        (kind,) = item["inner"]
        inner = item["inner"][kind]
        if kind == "function":
            self.lines.add(
                f"{self._function(inner)} {path}::{item['name']}{self._signature(inner)}"
            )
        else:
            self.lines.add(f"{kind.removeprefix('assoc_')} {path}::{item['name']}")

    def _function(self, inner: dict[str, Any]) -> str:
        words = [name for name in ("const", "unsafe") if inner["header"][f"is_{name}"]]
        return " ".join([*words, "fn"])

    def _signature(self, inner: dict[str, Any]) -> str:
        inputs = ", ".join(f"{name}: {self._type(kind)}" for name, kind in inner["sig"]["inputs"])
        output = inner["sig"]["output"]
        returned = "" if output is None else f" -> {self._type(output)}"
        return f"{self._generics(inner)}({inputs}){returned}"

    def _generics(self, inner: dict[str, Any]) -> str:
        params = inner.get("generics", {}).get("params", []) if isinstance(inner, dict) else []
        shown = []
        for param in params:
            kind = param["kind"].get("type")
            if kind is None:
                shown.append(param["name"])
            elif not kind["is_synthetic"]:
                shown.append(param["name"] + self._bounds(kind["bounds"], ": "))
        return f"<{', '.join(shown)}>" if shown else ""

    def _bounds(self, bounds: list[Any], before: str) -> str:
        shown = [self._path(one["trait_bound"]["trait"]) for one in bounds if "trait_bound" in one]
        return before + " + ".join(shown) if shown else ""

    def _path(self, path: dict[str, Any]) -> str:
        arguments = (path.get("args") or {}).get("angle_bracketed")
        if not arguments or not arguments["args"]:
            return str(path["path"])
        shown = [one.get("lifetime") or self._type(one.get("type")) for one in arguments["args"]]
        return f"{path['path']}<{', '.join(shown)}>"

    def _type(self, kind: Any) -> str:  # noqa: PLR0911
        if not isinstance(kind, dict):
            return "_"
        (name,) = kind
        inner = kind[name]
        match name:
            case "primitive" | "generic":
                return str(inner)
            case "resolved_path":
                return self._path(inner)
            case "borrowed_ref":
                mutable = "mut " if inner["is_mutable"] else ""
                lifetime = f"{inner['lifetime']} " if inner["lifetime"] else ""
                return f"&{lifetime}{mutable}{self._type(inner['type'])}"
            case "tuple":
                return f"({', '.join(map(self._type, inner))})"
            case "slice":
                return f"[{self._type(inner)}]"
            case "array":
                return f"[{self._type(inner['type'])}; {inner['len']}]"
            case "impl_trait":
                return "impl" + self._bounds(inner, " ")
            case "dyn_trait":
                return "dyn " + " + ".join(self._path(one["trait"]) for one in inner["traits"])
            case "function_pointer":
                inputs = ", ".join(self._type(one) for _, one in inner["sig"]["inputs"])
                return f"fn({inputs}) -> {self._type(inner['sig']['output'])}"
            case "qualified_path":
                return f"{self._type(inner['self_type'])}::{inner['name']}"
            case _:
                return name


def update(file: str) -> None:
    """Write the list of the crate that the JSON describes."""
    lister = Lister(data(Path(file)))
    LIST.write_text("\n".join(sorted(lister.lines)) + "\n")
    if lister.without_example:
        sys.exit("no example has: " + ", ".join(sorted(lister.without_example)))


def files() -> dict[Path, str]:
    """List nothing: only rustdoc knows the crate."""
    return {}
