"""How much of the evidence recall brings up: questions about long dialogues, and the turns that answer them.

Reads files in LoCoMo's format and in REALTALK's, or folders in BEAM's, and goes through the public API: each dialogue
is a user, each session a conversation that is closed and remembered, each question a recall by topic, asked a day after
the last turn. Recall@k of a question is the share of its evidence among the first k turns, averaged over all questions;
a session stands where its best turn does. Questions without an answer in the dialogue (LoCoMo's category 5, BEAM's
abstention) and those whose evidence names no turn that is there are not counted.

BM25 alone and the embedder's vectors alone rank the same texts in the same run. `query_p50_ms` is the median wall time
of a recall of 10 in a space that was recalled from before.

    python bench/recall.py --data PATH
    python bench/recall.py --data PATH --embedder none --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import single_thread  # noqa: F401
from bar import Bar
from baselines import Bm25, ranked
from beam import is_beam, read_beam
from dialogues import Dialogue, NotADialogue, Session, read_dialogues
from evidence import DEPTHS, SESSION_DEPTH, Recall
from report import aligned
from tellback import Tellback
from tellback.embed import resolve_embedder
from tellback.errors import TellbackError

FORMATS = ("auto", "locomo", "beam")
NAMESPACE = "dialogue"
TIMED_LIMIT = 10


@dataclass(slots=True)
class Measured:
    """What a run has found so far."""

    ours: Recall = field(default_factory=Recall)
    bm25: Recall = field(default_factory=Recall)
    dense: Recall = field(default_factory=Recall)
    ingest_s: float = 0.0
    query_ms: list[float] = field(default_factory=list)


async def measure(dialogues: Sequence[Dialogue], embedder: str | None, folder: Path, bar: Bar) -> Measured:
    """All dialogues through one file, one after the other."""
    measured = Measured()
    async with Tellback(folder / "recall.db", embedder=embedder) as rc:
        for dialogue in dialogues:
            user = rc.user(dialogue.name)
            start = time.perf_counter()
            space_id, turn_of = await _remember(user, dialogue, bar)
            await rc.jobs.drain()
            measured.ingest_s += time.perf_counter() - start
            await _ask(user, space_id, turn_of, dialogue, measured, bar)
            await _ask_the_others(dialogue, embedder, measured)
    return measured


def result(data: Path, embedder: str, measured: Measured, *, has_dense: bool) -> dict[str, Any]:
    """What `--json` prints: rates from 0 to 1."""
    return {
        "data": data.resolve().name,
        "embedder": embedder,
        "questions": len(measured.ours.rows),
        **measured.ours.summary(),
        "by_category": measured.ours.by_category(),
        "baselines": {
            "bm25": _baseline(measured.bm25),
            "dense": _baseline(measured.dense) if has_dense else None,
        },
        "ingest_s": round(measured.ingest_s, 3),
        "query_p50_ms": round(median(measured.query_ms), 4),
    }


def table(found: Mapping[str, Any]) -> str:
    """What a person wants to see."""
    head = ["", "questions", *(f"turn r@{depth}" for depth in DEPTHS), f"session r@{SESSION_DEPTH}"]
    rows = [head, ["Tellback", *_cells(found, found["questions"])]]
    titles = {"bm25": "BM25 alone", "dense": "dense alone"}
    for name, baseline in found["baselines"].items():
        rows.append([titles[name], *(_cells(baseline, found["questions"]) if baseline else ["", "-"])])
    for category, numbers in found["by_category"].items():
        rows.append([f"category {category}", *_cells(numbers, numbers["questions"])])
        for name, baseline in found["baselines"].items():
            if baseline:
                rows.append([f"  {titles[name]}", *_cells(baseline["by_category"][category], "")])
    return "\n".join(
        [
            f"{found['data']}, {found['questions']} questions, embedder {found['embedder']}",
            f"remembered in {found['ingest_s']:.1f} s; "
            f"a warm recall of {TIMED_LIMIT} takes {found['query_p50_ms']:.2f} ms (p50)",
            "",
            *aligned(rows),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    name = None if options.embedder.lower() == "none" else options.embedder
    try:
        embedder = resolve_embedder(name)
        dialogues = _read(options.data, options.format)
        bar = Bar(sum(len(one.sessions) + 2 * len(one.questions) for one in dialogues))
        with tempfile.TemporaryDirectory(prefix="recall-") as folder:
            measured = asyncio.run(measure(dialogues, name, Path(folder), bar))
    except (NotADialogue, TellbackError, OSError) as error:
        print(f"recall.py: {error}", file=sys.stderr)
        return 1
    bar.end()
    found = result(options.data, embedder.name if embedder else "none", measured, has_dense=embedder is not None)
    if options.json is None:
        print(table(found))
    elif options.json == "-":
        print(json.dumps(found))
    else:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


async def _remember(user: Any, dialogue: Dialogue, bar: Bar) -> tuple[str, dict[str, str]]:
    """Every session as a conversation; gives the space, and which turn each message is."""
    space = await user.memory.create_space("dialogue")
    names = _by_role(dialogue)
    turn_of: dict[str, str] = {}
    remembered = 0
    for session in dialogue.sessions:
        metadata = {"speakers": names} if names else None
        conversation = await user.conversations.create(NAMESPACE, metadata=metadata)
        stored = await user.conversations.append_messages(conversation.id, _messages(session, dialogue, names))
        turn_of |= {message.id: turn.id for message, turn in zip(stored, session.turns, strict=True)}
        await user.conversations.close(conversation.id)
        remembered += len(await user.memory.remember_conversation(space.id, conversation.id))
        bar.step(f"{dialogue.name}: remembering")
    if remembered != len(turn_of):
        bar.say(f"{dialogue.name}: {len(turn_of)} turns gave {remembered} memories")
    return space.id, turn_of


async def _ask(
    user: Any, space_id: str, turn_of: Mapping[str, str], dialogue: Dialogue, measured: Measured, bar: Bar
) -> None:
    session_of = dialogue.session_of
    now = dialogue.asked_at
    for question in dialogue.questions:
        recalled = await user.memory.recall_by_topic(space_id, question.text, limit=len(turn_of), now=now)
        ranking = [turn_of[id] for hit in recalled.hits for id in hit.atom.source_message_ids]
        measured.ours.add(question, ranking, session_of)
        bar.step(f"{dialogue.name}: asking")
    for question in dialogue.questions:
        start = time.perf_counter()
        await user.memory.recall_by_topic(space_id, question.text, limit=TIMED_LIMIT, now=now)
        measured.query_ms.append(1000 * (time.perf_counter() - start))
        bar.step(f"{dialogue.name}: timing")


async def _ask_the_others(dialogue: Dialogue, embedder: str | None, measured: Measured) -> None:
    """BM25 alone and vectors alone, on the texts that memory holds."""
    turns = dialogue.turns
    ids = [turn.id for turn in turns]
    texts = [f"{turn.speaker}: {turn.text}" if turn.speaker else turn.text for turn in turns]
    session_of = dialogue.session_of
    words = Bm25(texts)
    for question in dialogue.questions:
        measured.bm25.add(question, ranked(words.scores(question.text), ids), session_of)
    dense = resolve_embedder(embedder)
    if dense is None or not dialogue.questions:
        return
    vectors = await dense.embed(texts)
    asked = await dense.embed([question.text for question in dialogue.questions], query=True)
    for question, vector in zip(dialogue.questions, asked, strict=True):
        measured.dense.add(question, ranked(vectors @ vector, ids), session_of)


def _by_role(dialogue: Dialogue) -> dict[str, str]:
    """Whose name each role stands for; empty if they are roles already, or are too many for that."""
    speakers = dialogue.speakers
    if dialogue.roles or len(speakers) > 2 or "" in speakers:
        return {}
    return dict(zip(("user", "assistant"), speakers, strict=False))


def _messages(session: Session, dialogue: Dialogue, names: Mapping[str, str]) -> list[dict[str, str]]:
    roles = {name: role for role, name in names.items()}
    messages = []
    for turn in session.turns:
        role = turn.speaker if dialogue.roles and turn.speaker == "assistant" else roles.get(turn.speaker, "user")
        # Where roles cannot tell the speakers apart, the text does.
        named = not names and not dialogue.roles and turn.speaker
        content = f"{turn.speaker}: {turn.text}" if named else turn.text
        messages.append({"role": role, "content": content, "created_at": turn.said_at.isoformat()})
    return messages


def _read(path: Path, format: str) -> list[Dialogue]:
    def say(text: str) -> None:
        print(text, file=sys.stderr)

    as_beam = format == "beam" or (format == "auto" and is_beam(path))
    found = read_beam(path, say) if as_beam else read_dialogues(path, say)
    asked = [one for one in found if one.questions]
    if not asked:
        raise NotADialogue(f"{path} has no question whose evidence is in its dialogues")
    return asked


def _baseline(recall: Recall) -> dict[str, Any]:
    return {**recall.summary(), "by_category": recall.by_category()}


def _cells(numbers: Mapping[str, Any], questions: object) -> list[str]:
    rates = [*numbers["turn"].values(), *numbers["session"].values()]
    return [str(questions), *(f"{rate:.3f}" for rate in rates)]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    made = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    made.add_argument("--data", type=Path, required=True, metavar="PATH", help="a JSON file, or a folder")
    made.add_argument("--format", choices=FORMATS, default="auto", help="told by the files themselves, unless given")
    made.add_argument("--embedder", default="static", help='a name, such as "static" or "onnx"; "none" for words alone')
    made.add_argument(
        "--json", nargs="?", const="-", metavar="PATH", help="one JSON object, on stdout or in a file, and no table"
    )
    return made.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
