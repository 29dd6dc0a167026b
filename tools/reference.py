"""Write the generated pages of the reference: the exports of `tellback`, its commands, and the REST operations.

Run `python tools/reference.py`; a test fails when the pages are out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

import tellback
from tellback.cli.app import app
from tellback.exports import names_by_module
from tellback.server.openapi import TAGS
from tellback.wire.base import camel
from tellback.wire.operation import Operation
from tellback.wire.operations import OPERATIONS

PAGES = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Written by tools/reference.py from the code. -->"


TOPICS = {
    "Open a store or a server": "Tellback TellbackClient User WorkerOptions",
    "Chat": "run_chat_turn TurnConfig TurnInput TurnResult Attachment Identity Session Approval",
    "Conversations and memory": """
        Conversation StoredMessage MemorySpace Atom Category Entity RecallResult WorkingContext memory_tools
    """,
    "Models and the loop": """
        ChatOptions ChatRequest Model open_model AnthropicModel CompatibleModel GeminiModel LocalModel OllamaModel
        OpenAIModel OpenRouterModel run_loop run_loop_messages run_loop_stream stream_loop LoopResult
    """,
    "Messages and replies": """
        Message MessagePart user_message assistant_message system_message tool_result_message text_part image_part
        file_part message_text ChatReply ChatUsage ReplyDelta TextDelta StreamStop
    """,
    "Tools and skills": """
        tool Tool ToolCall ToolResult ToolContext define_tool mcp_tools McpServer skill Skill load_skills
    """,
    "Agents with routes": """
        Agent Route State END_ROUTE Guideline Term Capability CannedResponse CompositionMode Response StreamChunk
        Persistence SessionState create_session
    """,
    "Errors": """
        TellbackError ConfigurationError InvalidArgumentError NotFoundError ProviderError StoreError
    """,
}
"""The names that `tellback` exports, by topic."""
MODULES = names_by_module(tellback._EXPORTS)


def build_exports_page() -> str:
    """Build the page of the names that `tellback` exports, by topic."""
    parts = [
        "# What `tellback` exports",
        NOTE,
        "`from tellback import …`: the names that most programs need, loaded when first used. Everything else is"
        " imported from its module: `from tellback.errors import StoreBusyError`, `from tellback.memory import"
        " PatternMining`, `from tellback.sessions import RedisAdapter`. [The reference](index.md) lists the modules.",
    ]
    for topic, names in TOPICS.items():
        rows = [f"| [`{name}`][{explained_at(name)}] | {_summary(name)} |" for name in names.split()]
        parts += [f"## {topic}", "\n".join(["| Name | Description |", "|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def explained_at(name: str) -> str:
    """Return the path under which the reference documents an exported name.

    >>> explained_at("Agent"), explained_at("tool")  # a function and its module may have the same name
    ('tellback.agent.Agent', 'tellback.tools.tool.tool')
    """
    path = f"{MODULES[name]}.{name}"
    getattr(tellback, name)  # loads its module
    return f"{path}.{name}" if path in sys.modules else path


def build_commands_page() -> str:
    """Build the page of the command line."""
    parts = [
        "# The command `tellback`",
        NOTE,
        "`pip install 'tellback[cli]'`. `tellback COMMAND --help` prints the same text.",
    ]
    for path, command in walk_commands(typer.main.get_command(app)):
        parts += [f"## `{' '.join(path)}`", _prose(command.help or "")]
        if examples := re.findall(r"^\s*(\$ .+)$", (command.epilog or "").replace("\\[", "["), re.MULTILINE):
            parts.append("\n".join(["```console", *examples, "```"]))
        if rows := [row for parameter in command.params if (row := _parameter_row(parameter))]:
            parts.append("\n".join(["| | |", "|---|---|", *rows]))
    return "\n\n".join(part for part in parts if part) + "\n"


def walk_commands(command: Any, path: tuple[str, ...] = ("tellback",)) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command without subcommands, with its full path."""
    groups = getattr(command, "commands", None)
    if groups is None:
        yield path, command
        return
    for name, inner in groups.items():
        if not inner.hidden:
            yield from walk_commands(inner, (*path, name))


def _parameter_row(parameter: Any) -> str | None:
    if getattr(parameter, "hidden", False) or parameter.name == "help":
        return None
    is_option = parameter.opts[0].startswith("-")
    names = parameter.opts + parameter.secondary_opts if is_option else [parameter.name.upper()]
    sentences = [
        _prose(getattr(parameter, "help", None) or ""),
        f"One of {choices}." if (choices := _choices(parameter)) else "",
        "Can be repeated." if getattr(parameter, "multiple", False) else "",
        f"Default: {default}." if (default := _default(parameter)) else "",
        "Required." if parameter.required else "",
        f"Environment variable: {variable}." if (variable := _variable(parameter)) else "",
    ]
    cells = [", ".join(f"`{name}`" for name in names), " ".join(filter(None, sentences))]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _choices(parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    return ", ".join(f"`{choice}`" for choice in get_args(annotation)) if get_origin(annotation) is Literal else ""


def _default(parameter: Any) -> str:
    default = parameter.default
    if callable(default) or not parameter.show_default or default is None or default in (False, "", (), []):
        return ""
    if default is True:
        return f"`{parameter.opts[0]}`"
    return f"`{f'{default:g}' if isinstance(default, float) else default}`"


def _variable(parameter: Any) -> str:
    variable = parameter.envvar
    names = [variable] if isinstance(variable, str) else variable or []
    return ", ".join(f"`{name}`" for name in names)


def _prose(text: str) -> str:
    """Convert help to Markdown: escape angle brackets, and drop everything after a form feed."""
    return text.partition("\f")[0].replace("\b\n", "").replace("<", "&lt;").strip()


def _summary(name: str) -> str:
    """Return the first sentence of the docstring, or the kind of value if there is none."""
    value = getattr(tellback, name)
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return "a value" if isinstance(value, str) or not hasattr(value, "__origin__") else "a type"
    first = (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", first)[0].replace("|", "\\|")


OPERATIONS_START, OPERATIONS_END = "<!-- operations: written by tools/reference.py -->", "<!-- end of operations -->"


def build_rest_page() -> str:
    """Build the page of the REST interface: replace its tables of paths, generated from the operations."""
    page = (PAGES / "rest.md").read_text()
    before, _, rest = page.partition(OPERATIONS_START)
    tables = [
        f"### {tag['name'].capitalize()}\n\n{tag['description']}\n\n{_operations_table(tag['name'])}" for tag in TAGS
    ]
    written = "\n\n".join(each for each in tables if "`" in each.partition("|---|")[2])
    return f"{before}{OPERATIONS_START}\n\n{written}\n\n{OPERATIONS_END}{rest.partition(OPERATIONS_END)[2]}"


def _operations_table(tag: str) -> str:
    rows = [_operation_row(each) for each in OPERATIONS.values() if each.tag == tag and each.is_mounted]
    return "\n".join(["| path | Python method | |", "|---|---|---|", *rows])


def _operation_row(operation: Operation[..., Any]) -> str:
    for_admins = [name for name in ("user_id", "everyone") if name in operation.extra]
    filters = [f"`{camel(each.wire_name)}`" for each in operation.query if each.name not in for_admins]
    notes = [
        f"with {', '.join(filters)}" if filters else "",
        operation.note,
        "also as a [stream](#streams)" if operation.events and operation.result is not None else "",
        "a [stream](#streams)" if operation.events and operation.result is None else "",
        "*admin*" if operation.access == "admin" else "",
    ]
    return (
        f"| `{operation.verb} {operation.path}` | `{operation.stands_for}` | {'; '.join(filter(None, notes))} |"
    ).replace("|  |", "| |")


WRITERS = {"tellback.md": build_exports_page, "cli.md": build_commands_page, "rest.md": build_rest_page}

if __name__ == "__main__":
    for name, write in WRITERS.items():
        (PAGES / name).write_text(write())
