"""Bringing what was extracted into a space: candidates are looked up, open questions decided, changes made at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tellback.conversations.runtime import Runtime
from tellback.errors import ExtractionError, StoreBusyError
from tellback.memory.embedding import Embedding
from tellback.memory.extraction.accounting import accounted
from tellback.memory.extraction.embedded import embedded
from tellback.memory.extraction.entities import names, resolve
from tellback.memory.extraction.reconcile import Plan, plan, slots
from tellback.memory.extraction.values import Decider, Decision, Extraction, Question, Verdict, Window
from tellback.memory.recalling import Recall, RecallRequest
from tellback.memory.view import NEVER, Wanted
from tellback.stores import AtomDraft, JobEnd, Memories, Reconciliation
from tellback.types.jobs import Job, UsageRecord
from tellback.types.memory import Atom, Entity
from tellback.types.scope import Scope
from tellback.types.times import to_micros

CANDIDATES = 6
"""How many atoms are compared with a fact, by topic and by entity each."""

ATTEMPTS = 50
"""How often a plan is made anew because the space has changed meanwhile."""


class Reconciler:
    """Changes spaces as extractions ask for it. Each change is one transaction, which also ends the job."""

    def __init__(self, runtime: Runtime, embedding: Embedding, recall: Recall) -> None:
        self._runtime = runtime
        self._embedding = embedding
        self._recall = recall

    async def add(self, job: Job, drafts: Sequence[AtomDraft]) -> None:
        """Add atoms as they are; what was made from the same origin before is there already."""
        changes = await embedded(self._embedding, drafts)
        origins = [draft.origin for draft in drafts if draft.origin is not None]
        for _ in range(ATTEMPTS):
            version = await self._memories.version(job.scope, job.memory_space_id)
            known = await self._memories.originals(job.scope, job.memory_space_id, origins)
            counts = {"added": len(drafts) - len(known), "unchanged": len(known)}
            end = JobEnd(job.id, job.runs, counts)
            if await self._changed(job, Reconciliation(changes=changes), version, end):
                return
        raise _busy(job)

    async def run(
        self,
        job: Job,
        window: Window,
        extraction: Extraction,
        decider: Decider | None,
        used: list[UsageRecord],
    ) -> None:
        """Reconcile an extraction with what is known, in at most one call of the decider; `used` is told of it."""
        decisions: dict[int, Decision] = {}
        offered: dict[int, list[str]] = {}
        for _ in range(ATTEMPTS):
            version = await self._memories.version(job.scope, job.memory_space_id)
            planned = await self._planner(job, window, extraction, offered)
            found = planned(decisions)
            if found.questions and decider is not None:
                decisions = await self._decided(job, found, decider, used)
                offered = {number: [atom.id for atom in each.candidates] for number, each in found.questions.items()}
                decider = None  # once is enough, also if the space changes meanwhile
                found = planned(decisions)
            changes = await embedded(self._embedding, found.reconciliation.changes)
            wanted = replace(found.reconciliation, changes=changes)
            end = JobEnd(job.id, job.runs, _result(found), tuple(used))
            if await self._changed(job, wanted, version, end):
                return
        raise _busy(job)

    async def _planner(
        self, job: Job, window: Window, extraction: Extraction, offered: Mapping[int, Sequence[str]]
    ) -> Callable[[Mapping[int, Decision]], Plan]:
        """What says what to change as things stand now. What was offered to the decider is a candidate again."""
        scope, space_id = job.scope, job.memory_space_id
        entities = resolve(extraction.entities, await self._entities(scope, space_id, extraction))
        known = await self._memories.known(
            scope, space_id, slots=slots(extraction, entities), conversation_id=window.conversation.id
        )
        candidates = {}
        for number, fact in enumerate(extraction.facts):
            ids = [id for id in entities.ids_of(fact.entities) if id not in entities.drafts]
            atoms = await self._candidates(scope, space_id, fact.text, ids)
            atoms += [
                atom for id in offered.get(number, ()) if (atom := await self._memories.atom(scope, id)) is not None
            ]
            candidates[number] = list({atom.id: atom for atom in atoms}.values())
        return lambda decisions: plan(
            extraction, window, known=known, candidates=candidates, entities=entities, decisions=decisions or None
        )

    async def _entities(self, scope: Scope, space_id: str, extraction: Extraction) -> list[Entity]:
        found: dict[str, Entity] = {}
        for name in names(extraction):
            for entity in await self._memories.entities_named(scope, space_id, name):
                found[entity.id] = entity
        return list(found.values())

    async def _candidates(self, scope: Scope, space_id: str, text: str, entity_ids: list[str]) -> list[Atom]:
        """Atoms on the same topic, and about the same entities, also those that are over or were put aside."""
        now = to_micros(self._runtime.clock())
        asked = RecallRequest(scope, space_id, now, Wanted(valid_at=now, over=True, archived=True), CANDIDATES)
        found = (await self._recall.timeline(asked, query=text, start=-NEVER, end=NEVER)).atoms
        if entity_ids:
            found += (await self._recall.timeline(asked, entity_ids=entity_ids, start=-NEVER, end=NEVER)).atoms
        return found

    async def _decided(self, job: Job, found: Plan, decider: Decider, used: list[UsageRecord]) -> dict[int, Decision]:
        """All questions in one call."""
        asked = [*found.questions.values()]
        answers = await accounted(self._runtime, job, "reconciliation", used, decider.decide(asked))
        for question, decision in zip(asked, answers.decisions, strict=True):
            _check(question, decision)
        return dict(zip(found.questions, answers.decisions, strict=True))

    async def _changed(self, job: Job, wanted: Reconciliation, version: int, end: JobEnd) -> bool:
        done = await self._memories.reconcile(
            job.scope, job.memory_space_id, wanted, expected_version=version, end=end, now=self._runtime.clock()
        )
        return done is not None

    @property
    def _memories(self) -> Memories:
        return self._runtime.store.memories


def _check(question: Question, decision: Decision) -> None:
    """Refuse a decision that another attempt would only repeat."""
    if decision.verdict is not Verdict.NEW and decision.atom_id not in {atom.id for atom in question.candidates}:
        raise ExtractionError(
            f"A fact was judged {decision.verdict.value!r} to {decision.atom_id!r}, which is none of its candidates:"
            " let `decide` give the id of one of them, or the verdict 'new'.",
            repr(decision),
        )


def _busy(job: Job) -> StoreBusyError:
    return StoreBusyError(
        f"Space {job.memory_space_id!r} changed {ATTEMPTS} times while job {job.id!r} was at it: try again later."
    )


def _result(found: Plan) -> dict[str, Any]:
    """What a job tells of itself. The texts of what was left out are the user's: they go when the user does."""
    return {**found.counts, "left_out_facts": [{"text": each.text, "why": each.why} for each in found.left_out]}
