"""Spans for OpenTelemetry: turns, model calls, tools, recall, embeddings and jobs, for whoever wants to see them.

There are none, and nothing is loaded, until the application sets up a tracer provider. Messages stay out of them
unless `configure(capture_content=True)` lets it in; users' ids are never in them. Every
package may import this.
"""

from tellback.telemetry.spans import (
    CurrentSpan,
    JobSpan,
    ModelSpan,
    RecallSpan,
    ToolSpan,
    TurnSpan,
    configure,
    embedding_span,
    job_span,
    model_span,
    recall_span,
    tool_span,
    tracer,
    turn_span,
)

__all__ = [
    "CurrentSpan",
    "JobSpan",
    "ModelSpan",
    "RecallSpan",
    "ToolSpan",
    "TurnSpan",
    "configure",
    "embedding_span",
    "job_span",
    "model_span",
    "recall_span",
    "tool_span",
    "tracer",
    "turn_span",
]
