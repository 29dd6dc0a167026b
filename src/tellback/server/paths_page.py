"""`/docs`: the paths of the server to read, from its OpenAPI. A page of its own, which loads nothing from elsewhere."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from typing import Any

DOCS_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_DOCS_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
summary { cursor: pointer; padding: .25rem 0; } summary b { display: inline-block; min-width: 4.5rem; }
details > div { margin: 0 0 1rem 4.5rem; } table { border-collapse: collapse; } td { padding: 0 1rem 0 0; }
:root { color-scheme: light dark; }
"""


def render_docs_page(document: dict[str, Any], openapi_url: str) -> str:
    """The page."""
    operations: dict[str, list[str]] = defaultdict(list)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            operations[operation.get("tags", [""])[0]].append(_render_operation(document, method, path, operation))
    sections = "".join(
        f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>{''.join(operations[tag['name']])}"
        for tag in document["tags"]
    )
    intro = "".join(f"<p>{escape(part)}</p>" for part in document["info"]["description"].split("\n\n"))
    link = f'<p>All fields, with examples: <a href="{escape(openapi_url)}">{escape(openapi_url)}</a></p>'
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{_DOCS_STYLE}</style>'
    title = escape(document["info"]["title"])
    top = f"<!doctype html><html lang=en><head>{head}<title>{title}</title></head>"
    return f"{top}<body><h1>{title}</h1>{intro}{link}{sections}</body></html>"


def _render_operation(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    description = "".join(f"<p>{escape(part)}</p>" for part in operation.get("description", "").split("\n\n"))
    parameters = [_resolve_reference(document, each) for each in operation.get("parameters", ())]
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code><td>{escape(each['in'])}<td>{escape(each.get('description', ''))}"
        for each in parameters
    )
    statuses = ", ".join(escape(status) for status in operation["responses"])
    line = f"<b>{escape(method.upper())}</b> <code>{escape(path)}</code> {escape(operation.get('summary', ''))}"
    return f"<details><summary>{line}</summary><div>{description}<table>{rows}</table><p>Answers: {statuses}</div></details>"


def _resolve_reference(document: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    found: Any = document
    if "$ref" not in value:
        return value
    for part in value["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)
