"""The reconciler: it looks up candidates, calls the decider for open questions, and applies the plan in one
transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tellback.errors import ExtractionError, StoreBusyError
from tellback.memory.embedding import EmbeddingService, embed_changes
from tellback.memory.extraction.extractors import record_usage
from tellback.memory.extraction.reconciliation.entities import entity_names, resolve_entities
from tellback.memory.extraction.reconciliation.planner import ReconciliationPlan, plan_reconciliation, slots_to_load
from tellback.memory.extraction.values import Decider, Decision, Extraction, Question, Verdict, Window
from tellback.memory.recall_service import RecallRequest, RecallService
from tellback.memory.space_view import NEVER, RecallFilter
from tellback.runtime import Runtime
from tellback.stores import AtomDraft, JobEnd, MemoryStore, Reconciliation
from tellback.types.access import Scope
from tellback.types.ids import to_micros
from tellback.types.jobs import Job, UsageRecord
from tellback.types.memory import Atom, Entity

MAX_CANDIDATES = 6
"""How many atoms are compared with a fact, both by topic and by entity."""

MAX_ATTEMPTS = 50
"""How many plans are made at most. A plan is made again if the space has changed."""


class Reconciler:
    """Applies extractions to spaces. Each change is one transaction, which also ends the job."""

    def __init__(self, runtime: Runtime, embedding: EmbeddingService, recall: RecallService) -> None:
        self._runtime = runtime
        self._embedding = embedding
        self._recall = recall

    async def add_drafts(self, job: Job, drafts: Sequence[AtomDraft]) -> None:
        """Add atoms unchanged, except those whose origin is already stored."""
        changes = await embed_changes(self._embedding, drafts)
        origins = [draft.origin for draft in drafts if draft.origin is not None]
        for _ in range(MAX_ATTEMPTS):
            version = await self._memories.version(job.scope, job.memory_space_id)
            known = await self._memories.atoms_by_origin(job.scope, job.memory_space_id, origins)
            counts = {"added": len(drafts) - len(known), "unchanged": len(known)}
            end = JobEnd(job.id, job.runs, counts)
            if await self._apply(job, Reconciliation(changes=changes), version, end):
                return
        raise _busy_error(job)

    async def reconcile(
        self,
        job: Job,
        window: Window,
        extraction: Extraction,
        decider: Decider | None,
        usage: list[UsageRecord],
    ) -> None:
        """Reconcile an extraction with the known atoms, with at most one call of the decider. Its usage is added to
        `usage`."""
        decisions: dict[int, Decision] = {}
        offered: dict[int, list[str]] = {}
        for _ in range(MAX_ATTEMPTS):
            version = await self._memories.version(job.scope, job.memory_space_id)
            make_plan = await self._build_planner(job, window, extraction, offered)
            plan = make_plan(decisions)
            if plan.questions and decider is not None:
                decisions = await self._decide(job, plan, decider, usage)
                offered = {number: [atom.id for atom in each.candidates] for number, each in plan.questions.items()}
                decider = None  # call it only once, even if the space changes in the meantime
                plan = make_plan(decisions)
            changes = await embed_changes(self._embedding, plan.reconciliation.changes)
            reconciliation = replace(plan.reconciliation, changes=changes)
            end = JobEnd(job.id, job.runs, _job_result(plan), tuple(usage))
            if await self._apply(job, reconciliation, version, end):
                return
        raise _busy_error(job)

    async def _build_planner(
        self, job: Job, window: Window, extraction: Extraction, offered: Mapping[int, Sequence[str]]
    ) -> Callable[[Mapping[int, Decision]], ReconciliationPlan]:
        """Return a function that makes a plan for the current state. Atoms offered to the decider stay candidates."""
        scope, space_id = job.scope, job.memory_space_id
        entities = resolve_entities(extraction.entities, await self._load_known_entities(scope, space_id, extraction))
        known = await self._memories.known_atoms(
            scope, space_id, slots=slots_to_load(extraction, entities), conversation_id=window.conversation.id
        )
        candidates = {}
        for number, fact in enumerate(extraction.facts):
            ids = [id for id in entities.ids_of(fact.entities) if id not in entities.drafts]
            atoms = await self._find_candidates(scope, space_id, fact.text, ids)
            atoms += [
                atom for id in offered.get(number, ()) if (atom := await self._memories.atom(scope, id)) is not None
            ]
            candidates[number] = list({atom.id: atom for atom in atoms}.values())
        return lambda decisions: plan_reconciliation(
            extraction, window, known=known, candidates=candidates, entities=entities, decisions=decisions or None
        )

    async def _load_known_entities(self, scope: Scope, space_id: str, extraction: Extraction) -> list[Entity]:
        found: dict[str, Entity] = {}
        for name in entity_names(extraction):
            for entity in await self._memories.find_entities(scope, space_id, name):
                found[entity.id] = entity
        return list(found.values())

    async def _find_candidates(self, scope: Scope, space_id: str, text: str, entity_ids: list[str]) -> list[Atom]:
        """Return atoms on the same topic and about the same entities, including ended and archived ones."""
        now = to_micros(self._runtime.clock())
        request = RecallRequest(
            scope,
            space_id,
            now,
            RecallFilter(valid_at=now, include_superseded=True, include_archived=True),
            MAX_CANDIDATES,
        )
        found = (await self._recall.timeline(request, query=text, start=-NEVER, end=NEVER)).atoms
        if entity_ids:
            found += (await self._recall.timeline(request, entity_ids=entity_ids, start=-NEVER, end=NEVER)).atoms
        return found

    async def _decide(
        self, job: Job, plan: ReconciliationPlan, decider: Decider, usage: list[UsageRecord]
    ) -> dict[int, Decision]:
        questions = [*plan.questions.values()]
        answers = await record_usage(self._runtime, job, "reconciliation", usage, decider.decide(questions))
        for question, decision in zip(questions, answers.decisions, strict=True):
            _validate_decision(question, decision)
        return dict(zip(plan.questions, answers.decisions, strict=True))

    async def _apply(self, job: Job, reconciliation: Reconciliation, version: int, end: JobEnd) -> bool:
        applied = await self._memories.reconcile(
            job.scope, job.memory_space_id, reconciliation, expected_version=version, end=end, now=self._runtime.clock()
        )
        return applied is not None

    @property
    def _memories(self) -> MemoryStore:
        return self._runtime.store.memories


def _validate_decision(question: Question, decision: Decision) -> None:
    """Raise `ExtractionError`, which fails the job without a retry, if the id of a decision is not a candidate's."""
    if decision.verdict is not Verdict.NEW and decision.atom_id not in {atom.id for atom in question.candidates}:
        raise ExtractionError(
            f"The verdict {decision.verdict.value!r} has the id {decision.atom_id!r}, which is not a candidate's id."
            " `decide` must return the id of a candidate, or the verdict 'new'.",
            repr(decision),
        )


def _busy_error(job: Job) -> StoreBusyError:
    return StoreBusyError(
        f"Space {job.memory_space_id!r} changed {MAX_ATTEMPTS} times during job {job.id!r}: try again later."
    )


def _job_result(plan: ReconciliationPlan) -> dict[str, Any]:
    """Return the result of a job. The texts of left-out facts belong to the user and are erased with the user."""
    return {**plan.counts, "left_out_facts": [{"text": each.text, "why": each.why} for each in plan.left_out]}
