"""Spans for OpenTelemetry: turns, model calls, tools, recall, embeddings and jobs, for whoever wants to see them.

There are none, and nothing is loaded, until the application sets up a tracer provider. Messages stay out of them
unless `configure(capture_content=True)` lets it in; users' ids are never in them. Every
package may import this.
"""

from tellback.telemetry.config import configure as configure
from tellback.telemetry.config import tracer as tracer
from tellback.telemetry.spans import CurrentSpan as CurrentSpan
from tellback.telemetry.spans import JobSpan as JobSpan
from tellback.telemetry.spans import ModelSpan as ModelSpan
from tellback.telemetry.spans import RecallSpan as RecallSpan
from tellback.telemetry.spans import ToolSpan as ToolSpan
from tellback.telemetry.spans import TurnSpan as TurnSpan
from tellback.telemetry.spans import embedding_span as embedding_span
from tellback.telemetry.spans import job_span as job_span
from tellback.telemetry.spans import model_span as model_span
from tellback.telemetry.spans import recall_span as recall_span
from tellback.telemetry.spans import tool_span as tool_span
from tellback.telemetry.spans import turn_span as turn_span
