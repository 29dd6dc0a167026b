"""Measure how much of the evidence recall finds: questions about long dialogues, and the turns that answer them.

The benchmark reads files in the formats of LoCoMo and REALTALK, or folders in BEAM's layout, and uses the public API.
Each dialogue is a user, each session is a conversation that is closed and remembered, and each question is a recall by
topic, asked a day after the last turn. Recall@k of a question is the share of its evidence in the first k turns,
averaged over all questions; a session has the rank of its best turn. Questions without an answer in the dialogue
(LoCoMo's category 5, BEAM's abstention) and questions whose evidence cites no existing turn are not counted.

BM25 alone and the embedder's vectors alone rank the same texts in the same run. `query_p50_ms` is the median wall time
of a recall of 10 in a space that has been recalled from before.

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
from baselines import Bm25, rank_ids
from beam import is_beam, read_beam
from dialogues import Dialogue, NotADialogue, Session, read_dialogues
from evidence import DEPTHS, SESSION_DEPTH, Recall
from progress import ProgressBar
from report import align_columns
from tellback import Tellback
from tellback.embed import resolve_embedder
from tellback.errors import TellbackError

FORMATS = ("auto", "locomo", "beam")
NAMESPACE = "dialogue"
TIMED_LIMIT = 10


@dataclass(slots=True)
class Results:
    """The results of a run so far."""

    ours: Recall = field(default_factory=Recall)
    bm25: Recall = field(default_factory=Recall)
    dense: Recall = field(default_factory=Recall)
    ingest_s: float = 0.0
    query_ms: list[float] = field(default_factory=list)


async def measure(dialogues: Sequence[Dialogue], embedder: str | None, folder: Path, progress: ProgressBar) -> Results:
    """Measure all dialogues in sequence, in one database file."""
    results = Results()
    async with Tellback(folder / "recall.db", embedder=embedder) as tb:
        for dialogue in dialogues:
            user = tb.user(dialogue.name)
            start = time.perf_counter()
            space_id, turn_by_message = await _ingest(user, dialogue, progress)
            await tb.jobs.drain()
            results.ingest_s += time.perf_counter() - start
            await _run_queries(user, space_id, turn_by_message, dialogue, results, progress)
            await _run_baselines(dialogue, embedder, results)
    return results


def build_result(data: Path, embedder: str, results: Results, *, has_dense: bool) -> dict[str, Any]:
    """Return the object that `--json` prints; rates are from 0 to 1."""
    return {
        "data": data.resolve().name,
        "embedder": embedder,
        "questions": len(results.ours.rows),
        **results.ours.summary(),
        "by_category": results.ours.by_category(),
        "baselines": {
            "bm25": _baseline(results.bm25),
            "dense": _baseline(results.dense) if has_dense else None,
        },
        "ingest_s": round(results.ingest_s, 3),
        "query_p50_ms": round(median(results.query_ms), 4),
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the report as text."""
    head = ["", "questions", *(f"turn r@{depth}" for depth in DEPTHS), f"session r@{SESSION_DEPTH}"]
    rows = [head, ["Tellback", *_cells(result, result["questions"])]]
    titles = {"bm25": "BM25 alone", "dense": "dense alone"}
    for name, baseline in result["baselines"].items():
        rows.append([titles[name], *(_cells(baseline, result["questions"]) if baseline else ["", "-"])])
    for category, numbers in result["by_category"].items():
        rows.append([f"category {category}", *_cells(numbers, numbers["questions"])])
        for name, baseline in result["baselines"].items():
            if baseline:
                rows.append([f"  {titles[name]}", *_cells(baseline["by_category"][category], "")])
    return "\n".join(
        [
            f"{result['data']}, {result['questions']} questions, embedder {result['embedder']}",
            f"remembered in {result['ingest_s']:.1f} s; "
            f"a warm recall of {TIMED_LIMIT} takes {result['query_p50_ms']:.2f} ms (p50)",
            "",
            *align_columns(rows),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    name = None if options.embedder.lower() == "none" else options.embedder
    try:
        embedder = resolve_embedder(name)
        dialogues = _read_dialogues(options.data, options.format)
        progress = ProgressBar(sum(len(dialogue.sessions) + 2 * len(dialogue.questions) for dialogue in dialogues))
        with tempfile.TemporaryDirectory(prefix="recall-") as folder:
            results = asyncio.run(measure(dialogues, name, Path(folder), progress))
    except (NotADialogue, TellbackError, OSError) as error:
        print(f"recall.py: {error}", file=sys.stderr)
        return 1
    progress.end()
    result = build_result(options.data, embedder.name if embedder else "none", results, has_dense=embedder is not None)
    if options.json is None:
        print(table(result))
    elif options.json == "-":
        print(json.dumps(result))
    else:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0


async def _ingest(user: Any, dialogue: Dialogue, progress: ProgressBar) -> tuple[str, dict[str, str]]:
    """Add each session as a conversation; return the space, and the turn of each message."""
    space = await user.memory.create_space("dialogue")
    names = _names_by_role(dialogue)
    turn_by_message: dict[str, str] = {}
    remembered = 0
    for session in dialogue.sessions:
        metadata = {"speakers": names} if names else None
        conversation = await user.conversations.create(NAMESPACE, metadata=metadata)
        stored = await user.conversations.append_messages(conversation.id, _messages(session, dialogue, names))
        turn_by_message |= {message.id: turn.id for message, turn in zip(stored, session.turns, strict=True)}
        await user.conversations.close(conversation.id)
        remembered += len(await user.memory.remember_conversation(space.id, conversation.id))
        progress.step(f"{dialogue.name}: remembering")
    if remembered != len(turn_by_message):
        progress.print_line(f"{dialogue.name}: {len(turn_by_message)} turns gave {remembered} memories")
    return space.id, turn_by_message


async def _run_queries(
    user: Any,
    space_id: str,
    turn_by_message: Mapping[str, str],
    dialogue: Dialogue,
    results: Results,
    progress: ProgressBar,
) -> None:
    session_by_turn = dialogue.session_by_turn
    now = dialogue.question_time
    for question in dialogue.questions:
        recalled = await user.memory.recall_by_topic(space_id, question.text, limit=len(turn_by_message), now=now)
        ranking = [turn_by_message[id] for hit in recalled.hits for id in hit.atom.source_message_ids]
        results.ours.add(question, ranking, session_by_turn)
        progress.step(f"{dialogue.name}: asking")
    for question in dialogue.questions:
        start = time.perf_counter()
        await user.memory.recall_by_topic(space_id, question.text, limit=TIMED_LIMIT, now=now)
        results.query_ms.append(1000 * (time.perf_counter() - start))
        progress.step(f"{dialogue.name}: timing")


async def _run_baselines(dialogue: Dialogue, embedder: str | None, results: Results) -> None:
    """Rank the stored texts by BM25 alone and by vectors alone."""
    turns = dialogue.turns
    ids = [turn.id for turn in turns]
    texts = [f"{turn.speaker}: {turn.text}" if turn.speaker else turn.text for turn in turns]
    session_by_turn = dialogue.session_by_turn
    bm25 = Bm25(texts)
    for question in dialogue.questions:
        results.bm25.add(question, rank_ids(bm25.scores(question.text), ids), session_by_turn)
    dense = resolve_embedder(embedder)
    if dense is None or not dialogue.questions:
        return
    vectors = await dense.embed(texts)
    query_vectors = await dense.embed([question.text for question in dialogue.questions], query=True)
    for question, vector in zip(dialogue.questions, query_vectors, strict=True):
        results.dense.add(question, rank_ids(vectors @ vector, ids), session_by_turn)


def _names_by_role(dialogue: Dialogue) -> dict[str, str]:
    """Return the speaker's name for each role; empty if the speakers are roles, or more than two."""
    speakers = dialogue.speakers
    if dialogue.roles or len(speakers) > 2 or "" in speakers:
        return {}
    return dict(zip(("user", "assistant"), speakers, strict=False))


def _messages(session: Session, dialogue: Dialogue, names: Mapping[str, str]) -> list[dict[str, str]]:
    roles = {name: role for role, name in names.items()}
    messages = []
    for turn in session.turns:
        role = turn.speaker if dialogue.roles and turn.speaker == "assistant" else roles.get(turn.speaker, "user")
        # If roles do not identify the speakers, the text names them.
        needs_name = not names and not dialogue.roles and turn.speaker
        content = f"{turn.speaker}: {turn.text}" if needs_name else turn.text
        messages.append({"role": role, "content": content, "created_at": turn.timestamp.isoformat()})
    return messages


def _read_dialogues(path: Path, format: str) -> list[Dialogue]:
    def warn(text: str) -> None:
        print(text, file=sys.stderr)

    uses_beam = format == "beam" or (format == "auto" and is_beam(path))
    dialogues = read_beam(path, warn) if uses_beam else read_dialogues(path, warn)
    with_questions = [dialogue for dialogue in dialogues if dialogue.questions]
    if not with_questions:
        raise NotADialogue(f"{path} has no question whose evidence is in its dialogues")
    return with_questions


def _baseline(recall: Recall) -> dict[str, Any]:
    return {**recall.summary(), "by_category": recall.by_category()}


def _cells(numbers: Mapping[str, Any], questions: object) -> list[str]:
    rates = [*numbers["turn"].values(), *numbers["session"].values()]
    return [str(questions), *(f"{rate:.3f}" for rate in rates)]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, metavar="PATH", help="a JSON file or a folder")
    parser.add_argument("--format", choices=FORMATS, default="auto", help="the format of the files (default: detected)")
    parser.add_argument(
        "--embedder", default="static", help='a name, such as "static" or "onnx"; "none" to rank by words alone'
    )
    parser.add_argument("--json", nargs="?", const="-", metavar="PATH", help="write one JSON object, and no table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
