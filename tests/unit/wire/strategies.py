"""Hypothesis strategies for values of all wire models."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from tellback.types.access import Scope
from tellback.types.blocks import ContentBlock, MediaBlock, TextBlock, ToolResultBlock, ToolUseBlock
from tellback.types.conversations import Conversation, StoredMessage
from tellback.types.jobs import Binding, ConversationScope, ExtractionPolicy, ExtractionRun, Job, JobStatus
from tellback.types.memory import (
    Atom,
    AtomStatus,
    Category,
    CategoryKind,
    Citation,
    Entity,
    EntityStatus,
    EntityType,
    MemorySpace,
    RecallHit,
    RecallMode,
    RecallResult,
    WorkingContext,
)
from tellback.types.messages import ChatUsage, Message, MessagePart, ToolCall

texts = st.text(max_size=12)
optional_texts = st.none() | texts
numbers = st.integers(0, 2**53 - 1)
reals = st.floats(allow_nan=False, allow_infinity=False)
moments: SearchStrategy[datetime] = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
optional_datetimes = st.none() | moments
scalars = st.none() | st.booleans() | numbers | reals | texts
json_values: SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2), max_leaves=4
)
objects = st.dictionaries(texts, json_values, max_size=2)
scopes = st.builds(Scope, texts, texts, texts)


def tuples(each: SearchStrategy[Any], max_size: int = 2) -> SearchStrategy[tuple[Any, ...]]:
    return st.lists(each, max_size=max_size).map(tuple)


categories = st.builds(Category, texts, st.sampled_from(CategoryKind))
citations = st.builds(Citation, texts, tuples(texts))
spaces = st.builds(MemorySpace, texts, scopes, texts, moments, moments, objects, numbers)
atoms = st.builds(
    Atom,
    id=texts,
    memory_space_id=texts,
    scope=scopes,
    text=texts,
    category=categories,
    valid_from=moments,
    created_at=moments,
    updated_at=moments,
    importance=st.integers(1, 5),
    confidence=st.floats(0, 1),
    valid_to=optional_datetimes,
    superseded_at=optional_datetimes,
    status=st.sampled_from(AtomStatus),
    source_conversation_id=optional_texts,
    source_message_ids=tuples(texts),
    entity_ids=tuples(texts),
    supersedes=optional_texts,
    superseded_by=optional_texts,
    other_sources=tuples(citations),
)
entities = st.builds(
    Entity,
    id=texts,
    memory_space_id=texts,
    scope=scopes,
    type=st.sampled_from(EntityType),
    canonical_name=texts,
    created_at=moments,
    updated_at=moments,
    description=optional_texts,
    attributes=objects,
    aliases=tuples(texts),
    status=st.sampled_from(EntityStatus),
    merged_into=optional_texts,
    first_seen_at=optional_datetimes,
    last_seen_at=optional_datetimes,
    atom_count=numbers,
)
hits = st.builds(RecallHit, atoms, reals, reals, reals, tuples(atoms, 1), st.dictionaries(texts, reals, max_size=2))
recalled = st.builds(RecallResult, st.sampled_from(RecallMode), tuples(hits), numbers, reals)
bindings = st.builds(
    Binding,
    id=texts,
    tenant_id=texts,
    app_id=texts,
    conversation_scope=st.lists(st.builds(ConversationScope, texts, texts), min_size=1, max_size=3).map(tuple),
    memory_space_ids=tuples(texts),
    memory_space_names=tuples(texts),
    extraction_policy=st.builds(ExtractionPolicy, texts, st.booleans(), st.booleans(), numbers),
    created_at=moments,
    updated_at=moments,
    enabled=st.booleans(),
    created_by=optional_texts,
)
jobs = st.builds(
    Job,
    id=texts,
    scope=scopes,
    kind=texts,
    status=st.sampled_from(JobStatus),
    conversation_id=texts,
    binding_id=texts,
    memory_space_id=texts,
    extraction_version=texts,
    from_seq=numbers,
    to_seq=numbers,
    created_at=moments,
    updated_at=moments,
    due_at=moments,
    attempts=numbers,
    finished_at=optional_datetimes,
    error=optional_texts,
    raw_output=optional_texts,
    result=objects,
    runs=numbers,
)
runs = st.builds(ExtractionRun, tuples(jobs))
calls = st.builds(ToolCall, texts, texts, objects, optional_texts)
parts = st.builds(
    MessagePart,
    texts,
    optional_texts,
    optional_texts,
    optional_texts,
    optional_texts,
    optional_texts,
    st.none() | objects,
)
messages = st.builds(
    Message,
    role=texts,
    content=texts,
    parts=st.none() | tuples(parts),
    tool_calls=tuples(calls),
    tool_call_id=optional_texts,
    name=optional_texts,
    is_error=st.booleans(),
)
contexts = st.builds(
    WorkingContext,
    context_block=texts,
    messages=tuples(messages),
    atoms_used=tuples(atoms),
    tokens_estimated=numbers,
    over_budget=st.booleans(),
    hits=tuples(hits, 1),
    turns_used=numbers,
    turns_dropped=numbers,
    hits_dropped=numbers,
    recall_query=optional_texts,
    remembers=st.booleans(),
)
conversations = st.builds(
    Conversation,
    id=texts,
    scope=scopes,
    namespace=texts,
    status=st.sampled_from(["open", "closed"]),
    created_at=moments,
    updated_at=moments,
    title=optional_texts,
    session_id=optional_texts,
    metadata=objects,
    closed_at=optional_datetimes,
    last_seq=numbers,
    turns=numbers,
    rolling_summary=optional_texts,
    rolling_summary_until_seq=numbers,
    summarized_turns=numbers,
    close_after=st.none() | st.timedeltas(timedelta(0), timedelta(days=3650)),
)
media: SearchStrategy[ContentBlock] = st.builds(
    MediaBlock,
    st.sampled_from(["image", "audio", "file"]),
    url=texts,
    mime_type=optional_texts,
    name=optional_texts,
    text=optional_texts,
)
words: SearchStrategy[ContentBlock] = st.builds(TextBlock, texts, st.none() | objects)
blocks: SearchStrategy[ContentBlock] = (
    words
    | media
    | st.builds(ToolUseBlock, texts, texts, objects, optional_texts, st.none() | objects)
    | st.builds(ToolResultBlock, texts, texts, st.booleans(), optional_texts, st.none() | tuples(words | media))
)
stored = st.builds(
    StoredMessage,
    id=texts,
    conversation_id=texts,
    seq=numbers,
    turn_id=texts,
    role=texts,
    content=tuples(blocks),
    created_at=moments,
    visibility=st.sampled_from(["user", "internal", "hidden"]),
    stop_reason=optional_texts,
    model=optional_texts,
    provider=optional_texts,
    usage=st.none() | st.builds(ChatUsage, input_tokens=st.none() | numbers, cost_usd=st.none() | reals),
    trace_id=optional_texts,
    idempotency_key=optional_texts,
    metadata=st.none() | objects,
)
