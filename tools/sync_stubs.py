"""Write `src/tellback/sync.pyi`: the types of the synchronous API, from the annotations of the handles it wraps.

`async def f(...) -> T` becomes `def f(...) -> T`, an asynchronous iterator becomes a plain one, and a handle becomes
its synchronous wrapper. A method created by a descriptor is read from the function in its `method` or `__wrapped__`.

Run `python tools/sync_stubs.py`; a test fails when the file is out of date.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, get_overloads

from tellback.app import Tellback
from tellback.client import TellbackClient
from tellback.portal import Handle

STUB = Path(__file__).parents[1] / "src" / "tellback" / "sync.pyi"
NOTE = "# Written by tools/sync_stubs.py from the asynchronous handles."
LEFT_OUT = {"open", "start", "start_worker", "wake"}
"""Methods that only work on the event loop and are not needed in the synchronous API."""
AWAITED = re.compile(r"(?:Coroutine\[Any, Any, |Awaitable\[)(.*)\]")
GENERATOR = re.compile(r"AsyncGenerator\[(.*), None\]")


class StubWriter:
    """Collects the classes of the stub and their imports."""

    def __init__(self) -> None:
        self._imports: dict[str, str] = {}
        self._reached: list[type[Handle]] = []

    def write(self, *roots: type[Handle]) -> str:
        """Return the stub of these classes and of all handles that they refer to."""
        self._reached = list(roots)  # `_members` appends the handles that it finds
        members = {kind.__name__: self._members(kind, is_root=kind in roots) for kind in self._reached}  # grows
        pairs = {name: members[f"Remote{name}"] for name in members if f"Remote{name}" in members}
        shared = {name: common for name, remote in pairs.items() if (common := _shared(members[name], remote))}
        bodies = [_class(f"_{name}", "", "", common) for name, common in shared.items()]
        for kind in self._reached:
            base = kind.__name__.removeprefix("Remote")
            own = {name: text for name, text in members[kind.__name__].items() if name not in shared.get(base, {})}
            bodies.append(_class(f"Sync{kind.__name__}", f"_{base}" if base in shared else "", _docstring(kind), own))
        imports = sorted(set(self._imports.values()))
        names = [f"Sync{kind.__name__}" for kind in self._reached]
        source = "\n".join([NOTE, *imports, f"__all__ = {sorted(names)}", *bodies])
        command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
        sorting = [sys.executable, "-m", "ruff", "check", "--fix", "--select", "I", *command[4:]]
        for run in (sorting, command):
            source = subprocess.run(run, input=source, capture_output=True, text=True, check=True).stdout
        return source

    def _members(self, kind: type[Handle], *, is_root: bool) -> dict[str, str]:
        members = {name: self._member(kind, name, value) for name, value in _public_members(kind)}
        if not is_root:
            return members
        self._imports[kind.__name__] = f"from {kind.__module__} import {kind.__name__}"
        return {"__init__": f"def __init__(self, target: {kind.__name__}) -> None: ...", **members}

    def _member(self, kind: type[Handle], name: str, value: Any) -> str:
        if isinstance(value, str):
            return f"{name}: {self._result(value, sys.modules[kind.__module__])}"
        if isinstance(value, property | cached_property):
            getter: Any = value.fget if isinstance(value, property) else value.func
            annotation = self._result(getter.__annotations__["return"], sys.modules[getter.__module__])
            if isinstance(value, property) and value.fset is not None:
                return f"{name}: {annotation}"
            return f"@property\ndef {name}(self) -> {annotation}:\n    {_docstring(value)}"
        function = inspect.unwrap(getattr(value, "method", value))
        docstring = _docstring(function)
        variants = get_overloads(function)
        if not variants:
            return f"def {name}{self._signature(function)}:\n    {docstring}"
        self._imports["overload"] = "from typing import overload"
        written = [f"@overload\ndef {name}{self._signature(each)}: ..." for each in variants]
        return "\n".join([written[0].removesuffix(" ...") + f"\n    {docstring}", *written[1:]])

    def _signature(self, function: Callable[..., Any]) -> inspect.Signature:
        module = sys.modules[function.__module__]
        signature = inspect.signature(function)
        parameters = [self._parameter(each, module) for each in signature.parameters.values()]
        result = _Source(self._result(signature.return_annotation, module))
        return signature.replace(parameters=parameters, return_annotation=result)

    def _parameter(self, parameter: inspect.Parameter, module: ModuleType) -> inspect.Parameter:
        if parameter.name == "self":
            return parameter
        annotation = _Source(self._resolve(parameter.annotation, module))
        default = parameter.default
        return parameter.replace(
            annotation=annotation, default=default if default is parameter.empty else _default(default)
        )

    def _result(self, annotation: str, module: ModuleType) -> str:
        """Return the synchronous result type for a result type of a handle."""
        annotation = AWAITED.sub(r"\1", GENERATOR.sub(r"Generator[\1]", annotation))
        annotation = annotation.replace("AsyncIterator[", "Iterator[")
        return self._resolve(annotation, module)

    def _resolve(self, annotation: str, module: ModuleType) -> str:
        """Return an annotation for the stub, and import each of its names."""
        if not isinstance(annotation, str):
            raise TypeError(f"{module.__name__} needs `from __future__ import annotations`: {annotation!r}")
        imports = _imports_of(module)
        for node in ast.walk(ast.parse(annotation, mode="eval")):
            if not isinstance(node, ast.Name):
                continue
            name = node.id
            source, statement = imports.get(name, (module.__name__, f"from {module.__name__} import {name}"))
            if name in ("Generator", "Iterator"):
                source, statement = "", f"from collections.abc import {name}"
            elif name not in imports and not hasattr(module, name):
                continue  # a builtin
            found = getattr(importlib.import_module(source), name, None) if source.startswith("tellback") else None
            if inspect.isclass(found) and issubclass(found, Handle):
                if annotation != name:
                    raise TypeError(f"A handle nested in another type cannot be wrapped: {annotation}")
                if found not in self._reached:
                    self._reached.append(found)
                return f"Sync{name}"
            if self._imports.setdefault(name, statement) != statement:  # the name is already used
                alias = f"{source.rpartition('.')[2].capitalize()}{name}"
                self._imports[alias] = f"{statement} as {alias}"
                annotation = re.sub(rf"\b{name}\b", alias, annotation)
        return annotation


def _class(name: str, base: str, docstring: str, members: dict[str, str]) -> str:
    lines = [docstring, *members.values()]
    return f"class {name}({base}):\n" + textwrap.indent("\n".join(lines if any(lines) else ["..."]), "    ")


def _shared(local: dict[str, str], remote: dict[str, str]) -> dict[str, str]:
    """Return the members that a local and a remote handle share; their docstrings may differ."""
    signatures = {name: text.partition('"""')[0] for name, text in remote.items()}
    return {name: text for name, text in local.items() if signatures.get(name) == text.partition('"""')[0]}


class _Source(str):
    """Source text that is its own `repr`, for use in a signature."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _public_members(kind: type[Handle]) -> Iterator[tuple[str, Any]]:
    """Return annotated attributes, properties and methods, including inherited ones."""
    members: dict[str, Any] = {}
    for base in reversed(kind.__mro__[:-1]):
        members |= inspect.get_annotations(base)
        members |= {name: value for name, value in vars(base).items() if not inspect.ismemberdescriptor(value)}
    return ((name, value) for name, value in members.items() if not name.startswith("_") and name not in LEFT_OUT)


@cache
def _imports_of(module: ModuleType) -> dict[str, tuple[str, str]]:
    """Return the imports of a module by name, including those under `TYPE_CHECKING`."""
    imports: dict[str, tuple[str, str]] = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Import):
            imports |= {each.asname or each.name: ("", ast.unparse(ast.Import([each]))) for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                statement = ast.unparse(ast.ImportFrom(node.module, [each], 0))
                imports[each.asname or each.name] = (node.module, statement)
    return imports


def _default(value: Any) -> _Source:
    is_plain = value is None or value == () or isinstance(value, bool | int | float | str)
    return _Source(repr(value) if is_plain and not isinstance(value, enum.Enum) else "...")


def _docstring(value: Any) -> str:
    """Return the first sentence of the docstring, which editors show."""
    first = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
    sentence = re.split(r"(?<=[.!?]) (?=[A-Z`])", first)[0]
    return f'"""{sentence.replace("await ", "")}"""' if sentence else "..."


def build_stub() -> str:
    """Return the text of `sync.pyi`."""
    return StubWriter().write(Tellback, TellbackClient)


if __name__ == "__main__":
    STUB.write_text(build_stub())
