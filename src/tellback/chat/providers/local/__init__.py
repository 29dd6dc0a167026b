"""GGUF files, run by llama.cpp in this process.

`model` has `LocalModel`, which loads and runs the file; `codec` encodes requests and decodes answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tellback.chat.discovery import is_installed, read_variable
from tellback.chat.registry import BuiltinProvider, FoundModel, Provider

GGUF_VARIABLE = "TELLBACK_GGUF"


def find_gguf_file(env: Mapping[str, str]) -> FoundModel:
    """Look for the model file in TELLBACK_GGUF."""
    path = read_variable(env, GGUF_VARIABLE)
    if not path:
        return FoundModel("local", None, False, f"{GGUF_VARIABLE} is not set")
    if not Path(path).is_file():
        return FoundModel("local", path, False, f"{GGUF_VARIABLE} is {path!r}, which is not a file")
    if not is_installed("xllamacpp"):
        note = f"{GGUF_VARIABLE} is set, but the package is missing: pip install 'tellback[local]'"
        return FoundModel("local", path, False, note)
    name = path if path.lower().endswith(".gguf") else f"local/{path}"
    return FoundModel("local", name, True, f"{GGUF_VARIABLE} is set")


PROVIDER = BuiltinProvider(
    Provider.LOCAL,
    "GGUF file",
    lambda model: model.endswith(".gguf") or model.startswith("local/"),
    "path/to/model.gguf",
    "tellback.chat.providers.local.model:LocalModel",
    find=find_gguf_file,
    vision=False,
)
