"""The errors that Tellback raises.

    TellbackError
    ├── ConfigurationError            wrong configuration; the message says what to change
    │   ├── UnknownModelError         no provider recognizes the model name
    │   ├── MissingKeyError           no API key was passed or found in the environment
    │   ├── MissingExtraError         an optional package is not installed
    │   ├── AgentSpecError            an invalid agent spec; the message contains the path
    │   └── FlowError                 an invalid flow; the message names the route, state or field
    ├── InvalidArgumentError          an invalid argument; also a ValueError
    ├── NotFoundError                 the scope contains no object with this id
    ├── ConversationClosedError       the conversation is closed and accepts no messages
    ├── TurnConflictError             another turn of the conversation is running
    ├── AlreadyAnsweredError          the message was already answered; contains the answer
    ├── SessionConflictError          another turn changed the session in the meantime
    ├── CannedResponseError           a strict agent has no canned response for this state
    ├── AlreadyDecidedError           the calls were already approved or denied
    ├── SkillError                    a skill cannot be loaded or read
    ├── AtomSupersededError           the atom was already superseded; supersede the newer one
    ├── EmbeddingError                texts could not be embedded
    ├── ExtractionError               the model's extraction could not be parsed; contains its text
    ├── ImportFormatError             an export file cannot be parsed; nothing was imported
    ├── JobLostError                  another worker took over the job
    ├── AccessError                   the server denied access
    │   ├── NotAuthenticatedError         the credential is missing, invalid or expired
    │   ├── NotAllowedError               the credential does not permit this request
    │   └── RateLimitedError              too many requests; contains when to retry
    ├── RequestError                  the server rejected the request
    │   ├── RequestTooLargeError          the body, a text or a page size is too large
    │   ├── PreconditionFailedError       the object changed in the meantime (If-Match)
    │   ├── IdempotencyConflictError      the idempotency key was used for a different request
    │   └── RequestInProgressError        the same request is still running
    ├── RemoteError                   the server failed; contains the HTTP status
    │   └── RemoteUnavailableError        the server cannot be reached, or timed out
    ├── StoreError                    the store failed; `in_doubt` if the write may be stored
    │   ├── StoreUnavailableError         the store cannot be reached or opened
    │   ├── StoreBusyError                another process locked the store for too long
    │   ├── StoreFullError                the disk is full
    │   ├── StoreReadOnlyError            the store is read-only
    │   ├── StoreCorruptError             the file is damaged, or not a database
    │   ├── StoreClosedError              the store is not open
    │   └── SchemaVersionError            the tables have an unknown version or belong to another program
    ├── ToolError                     a tool is defined incorrectly, or is not available
    │   ├── ToolSchemaError           no JSON Schema can be derived from a tool's function
    │   └── McpError                  an MCP server failed, timed out or sent an invalid answer
    └── ChatError                     a model call or the loop around it failed
        ├── BudgetExceededError       the request exceeds the token budget
        ├── MaxIterationsError        too many model calls; contains the messages so far
        ├── OutputValidationError     the answer does not match `output_type`
        └── ProviderError             a model provider failed
            ├── ProviderAuthError         401, 403
            ├── ProviderRequestError      the provider rejected the request (400, 404, 413, 422)
            ├── ProviderRateLimitError    429
            ├── ProviderOverloadedError   5xx, 529, overloaded
            ├── ProviderTimeoutError      no answer, or no next chunk, within the timeout
            ├── ProviderConnectionError   the connection failed or broke
            └── ProviderResponseError     the answer could not be parsed

A tool that raises is not in this tree: the model receives the failure as an error result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tellback.types import ChatUsage, Message

T = TypeVar("T")


class TellbackError(Exception):
    """The base class of all errors that Tellback raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors are pickled between processes (workers, test runners), and several classes have their own __init__.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[TellbackError], args: tuple[Any, ...], state: dict[str, Any]) -> TellbackError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(TellbackError):
    """The configuration is wrong; the message says what to change."""


class UnknownModelError(ConfigurationError):
    """No registered provider recognizes the model name."""

    def __init__(self, model: str, known: Sequence[str] = (), note: str = "") -> None:
        self.model = model
        self.known = tuple(known)
        text = f"No provider is registered for model {model!r}."
        if known:
            text += f" Known: {', '.join(known)}."
        text += (
            " Use a name that one of these recognizes, pass a model object such as CompatibleModel(...),"
            " or add a ProviderRegistration through ChatOptions(providers=with_providers([...]))."
        )
        super().__init__(f"{text} {note}" if note else text)


class MissingKeyError(ConfigurationError):
    """No API key was passed, and the environment contains none."""

    def __init__(self, provider: str, variables: Sequence[str], argument: str = "api_key") -> None:
        self.provider = provider
        self.variables = tuple(variables)
        names = " or ".join(variables)
        super().__init__(f"{provider} needs an API key: set {names} in the environment, or pass {argument}=... .")


class MissingExtraError(ConfigurationError):
    """A package that belongs to an optional extra is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package = package
        self.extra = extra
        super().__init__(f"{purpose} needs the package {package!r}: pip install 'tellback[{extra}]'.")


class AgentSpecError(ConfigurationError):
    """An agent spec is invalid at `path`, such as `tools[1].memorySpaceId`."""

    def __init__(self, path: str, problem: str, agent: str = "") -> None:
        self.path = path
        self.problem = problem
        self.agent = agent
        whose = f"Agent {agent!r}" if agent else "The agent spec"
        super().__init__(f"{whose}, at {path}: {problem}" if path else f"{whose}: {problem}")


class FlowError(ConfigurationError):
    """A flow is invalid at `place`, such as `route 'Book a flight', state 'Ask when'`."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place[:1].upper()}{place[1:]}: {problem}")


class InvalidArgumentError(TellbackError, ValueError):
    """An argument is invalid; nothing was changed."""


class NotFoundError(TellbackError):
    """The scope contains no object with this id: it never existed, was erased, or belongs to another user."""

    def __init__(self, kind: str, id: str, hint: str = "") -> None:
        self.kind = kind
        self.id = id
        super().__init__(f"There is no {kind} {id!r} for this user.{hint and ' '}{hint}")


def require_found(found: T | None, kind: str, id: str, hint: str = "") -> T:
    """Return `found`, or raise `NotFoundError` if it is None.

    >>> require_found("Maya lives in Lisbon.", "atom", "atom_1")
    'Maya lives in Lisbon.'
    """
    if found is None:
        raise NotFoundError(kind, id, hint)
    return found


class ConversationClosedError(TellbackError):
    """The conversation is closed and accepts no more messages."""

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"Conversation {id!r} is closed. Create a new conversation.")


class AtomSupersededError(TellbackError):
    """The atom was already superseded: only the newest atom of a chain can be superseded."""

    def __init__(self, id: str, superseded_by: str) -> None:
        self.id = id
        self.superseded_by = superseded_by
        super().__init__(f"Atom {id!r} was superseded by {superseded_by!r}. Supersede that atom instead.")


class AlreadyDecidedError(TellbackError):
    """The tool calls were already approved or denied, and their turn has ended."""

    def __init__(self, id: str, call_ids: Sequence[str]) -> None:
        self.id = id
        self.call_ids = tuple(call_ids)
        super().__init__(
            f"Conversation {id!r} has no pending call {', '.join(call_ids) or 'to decide'}: it was already decided, or"
            " a later message ended its turn. conversations.pending(id) returns the pending calls."
        )


class AlreadyAnsweredError(TellbackError):
    """A message with this idempotency key was already answered, and the passed session is not the one of that turn."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"This message was already answered with {text!r:.120}, and is not processed twice. Continue with the"
            " session that the earlier turn returned."
        )


class SkillError(TellbackError):
    """A skill cannot be loaded or read; `skill` is its name."""

    def __init__(self, skill: str, problem: str) -> None:
        self.skill = skill
        self.problem = problem
        super().__init__(f"Skill {skill!r}: {problem}")


class TurnConflictError(TellbackError):
    """Another turn of the conversation or session `id` is running, and did not end within the time to wait.

    `turn_id` is empty if the other turn is only known to run.
    """

    def __init__(self, id: str, turn_id: str, waited: float) -> None:
        self.id = id
        self.turn_id = turn_id
        super().__init__(
            f"{f'Turn {turn_id!r}' if turn_id else 'Another turn'} of {id!r} is still running after {waited:g} seconds."
            " Try again later, or pass a longer wait=... ."
        )


class SessionConflictError(TellbackError):
    """Another turn changed the stored session, or a new session has an id that exists. Nothing was saved."""

    def __init__(self, id: str, version: int, stored: int | None = None) -> None:
        self.id = id
        self.version = version
        self.stored = stored
        found = "a turn of it is running" if stored is None else f"the stored version is {stored}"
        super().__init__(
            f"A session with the id {id!r} already exists. Choose another id."
            if version == stored
            else f"The turn of session {id!r} began with version {version}, but {found}. Load it again and retry."
        )


class CannedResponseError(TellbackError):
    """No canned response can be used here; `missing` lists the values that their templates need."""

    def __init__(self, place: str, missing: Sequence[str] = ()) -> None:
        self.place = place
        self.missing = tuple(missing)
        needed = f" Their templates need these values: {', '.join(missing)}." if missing else ""
        super().__init__(f"No canned response can be used at {place}.{needed} Add a canned response without values.")


class EmbeddingError(TellbackError):
    """Texts could not be embedded; no vectors were returned.

    `retryable` is true if the same call may work later. The provider's error is the `__cause__`.
    """

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(message)


class ExtractionError(TellbackError):
    """The model's extraction could not be parsed, even after a retry that contained the error.

    `raw` is the last text of the model, `usage` the usage of all its calls.
    """

    def __init__(self, message: str, raw: str, usage: Sequence[ChatUsage] = ()) -> None:
        self.raw = raw
        self.usage = tuple(usage)
        super().__init__(message)


class ImportFormatError(TellbackError):
    """An export file is invalid: `path` is the file, `problem` says what is wrong and where."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}")


class JobLostError(TellbackError):
    """The job's lease expired and another worker took over, or the job was erased. This worker stored nothing."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"This worker no longer owns job {job_id!r}: another worker took over, or the job was erased.")


class AccessError(TellbackError):
    """The server denied access."""


class NotAuthenticatedError(AccessError):
    """The credential is missing, invalid or expired."""


class NotAllowedError(AccessError):
    """The credential is valid, but does not permit this request."""


class RateLimitedError(AccessError):
    """Too many requests or failed authentication attempts; retry after `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class RequestError(TellbackError):
    """The server rejected a request; nothing was changed."""


class RequestTooLargeError(RequestError):
    """The request's body, or a value in it, is larger than the server accepts."""


class PreconditionFailedError(RequestError):
    """The object has another version than the request expects. Read it again."""


class IdempotencyConflictError(RequestError):
    """The idempotency key was already used for a different request."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"Idempotency key {key!r:.120} was already used for a different request. Use a new key.")


class RequestInProgressError(RequestError):
    """A request with the same idempotency key is still running; retry later."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"The request with idempotency key {key!r:.120} is still running. Retry in a moment.")


class RemoteError(TellbackError):
    """A server failed or sent an invalid answer; `status` is the HTTP status, or None."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class RemoteUnavailableError(RemoteError):
    """A server could not be reached or did not answer in time. The same call may work later."""


class StoreError(TellbackError):
    """A store operation failed.

    Nothing was stored, unless `in_doubt` is true: then the connection broke during the commit, and the write may or may
    not be stored. Retry with the same idempotency key.
    """

    def __init__(self, message: str, *, in_doubt: bool = False) -> None:
        self.in_doubt = in_doubt
        super().__init__(message)


class StoreUnavailableError(StoreError):
    """The store cannot be opened or reached. The same call may work later."""


class StoreBusyError(StoreError):
    """Another process locked the store for too long. The same call may work later."""


class StoreFullError(StoreError):
    """The store's disk is full."""


class StoreReadOnlyError(StoreError):
    """The store is read-only."""


class StoreCorruptError(StoreError):
    """The file is damaged, or is not a database."""


class StoreClosedError(StoreError):
    """The store was used before it was opened, or after it was closed."""


class SchemaVersionError(StoreError):
    """The tables have another version than this release needs, or belong to another program."""


class ToolError(TellbackError):
    """A tool is defined incorrectly, or is not available."""


class ToolSchemaError(ToolError):
    """No JSON Schema can be derived from a function's signature."""


class McpError(ToolError):
    """An MCP server cannot be reached, does not answer in time, or sends an invalid answer."""

    def __init__(self, server: str, problem: str) -> None:
        self.server = server
        self.problem = problem
        super().__init__(f"MCP server {server!r}: {problem}")


class ChatError(TellbackError):
    """A model call or the loop around it failed."""


class BudgetExceededError(ChatError):
    """The request exceeds the token budget; nothing was sent."""

    def __init__(self, breakdown: Mapping[str, int], total: int, limit: int) -> None:
        self.breakdown = dict(breakdown)
        self.total = total
        self.limit = limit
        parts = ", ".join(f"{name} {count}" for name, count in self.breakdown.items())
        super().__init__(
            f"The request needs about {total} tokens, more than the limit of {limit} ({parts})."
            " Shorten the history or the tools, or raise max_context_tokens."
        )


class MaxIterationsError(ChatError):
    """The model still called tools after `max_iterations` model calls."""

    def __init__(self, max_iterations: int, messages: Sequence[Message], usage: ChatUsage | None = None) -> None:
        self.max_iterations = max_iterations
        self.messages = tuple(messages)
        self.usage = usage
        super().__init__(
            f"The model still called tools after {max_iterations} iterations."
            " Raise max_iterations, or set on_max_iterations='answer' for one last call without tools."
            " The messages so far are in .messages."
        )


class OutputValidationError(ChatError):
    """The model's answer does not match `output_type`, even after a retry that contained the error."""

    def __init__(self, expected: str, problem: str, text: str, messages: Sequence[Message]) -> None:
        self.problem = problem
        self.text = text
        self.messages = tuple(messages)
        super().__init__(f"The model's answer is not a valid {expected}: {problem}. Its text is in .text.")


class ProviderError(ChatError):
    """A model provider failed.

    - `retryable`: whether the same request may work later; `retry_after`: the seconds that the provider asked to wait.
    - `partial_text`: the text that was streamed before the failure.
    - `attempts`: every failure of the call, including retries and backup models.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        model: str = "",
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        request_id: str | None = None,
        body: Any = None,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.model = model
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after
        self.request_id = request_id
        self.body = body
        self.partial_text = ""
        self.attempts: tuple[ProviderError, ...] = ()


class ProviderAuthError(ProviderError):
    """The API key is wrong, or does not permit this request."""


class ProviderRequestError(ProviderError):
    """The provider rejected the request; sending it again does not help."""


class ProviderRateLimitError(ProviderError):
    """Too many requests or tokens."""


class ProviderOverloadedError(ProviderError):
    """The provider is overloaded or has an internal error."""


class ProviderTimeoutError(ProviderError):
    """No answer, or no next chunk of it, within the timeout."""


class ProviderConnectionError(ProviderError):
    """The connection failed, or broke before the answer was complete."""


class ProviderResponseError(ProviderError):
    """The provider's answer could not be parsed."""
