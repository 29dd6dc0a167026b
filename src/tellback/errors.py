"""Every error Tellback raises on purpose.

    TellbackError
    ├── ConfigurationError            something is set up wrong; the message says what to change
    │   ├── UnknownModelError         no provider knows the model's name
    │   ├── MissingKeyError           no API key was given or found in the environment
    │   ├── MissingExtraError         an optional package is not installed
    │   ├── AgentSpecError            an agent's description is wrong; says at which path
    │   └── FlowError                 an agent's routes are wrong; says at which route, state or field
    ├── InvalidArgumentError          a value that was passed cannot be used; also a ValueError
    ├── NotFoundError                 nothing of that id is in this scope
    ├── ConversationClosedError       a closed conversation takes no more messages
    ├── TurnConflictError             another turn of the conversation is running
    ├── AlreadyAnsweredError          the message was answered before; carries what was said
    ├── SessionConflictError          another turn has changed the session meanwhile
    ├── CannedResponseError           an agent that only says what is written has nothing to say
    ├── AlreadyDecidedError           the calls to approve were decided before, and their turn is over
    ├── SkillError                    a skill cannot be loaded or read
    ├── AtomSupersededError           a later atom took its place; supersede that one
    ├── EmbeddingError                texts could not be turned into vectors
    ├── ExtractionError               a model's extraction could not be read; carries what it said
    ├── ImportFormatError             a file of chats cannot be read; says where, and nothing was imported
    ├── JobLostError                  another worker has taken the job over
    ├── AccessError                   a server does not let it happen
    │   ├── NotAuthenticatedError         no credential, or one that is not valid (any more)
    │   ├── NotAllowedError               the credential is not for that
    │   └── RateLimitedError              too many requests; says when to come again
    ├── RequestError                  a request to a server was refused as it is
    │   ├── RequestTooLargeError          its body, a text or a page in it is too large
    │   ├── PreconditionFailedError       what was to be changed has changed meanwhile (If-Match)
    │   ├── IdempotencyConflictError      its idempotency key was used for another request
    │   └── RequestInProgressError        the same request is being answered
    ├── RemoteError                   a server's answer cannot be used; carries the status
    │   └── RemoteUnavailableError        it cannot be reached, or gave no answer in time
    ├── StoreError                    the store could not do it; nothing was acknowledged
    │   ├── StoreUnavailableError         it cannot be reached or opened
    │   ├── StoreBusyError                it is locked by someone else for too long
    │   ├── StoreFullError                the disk is full
    │   ├── StoreReadOnlyError            it can be read but not written
    │   ├── StoreCorruptError             the file is damaged, or not a database
    │   ├── StoreClosedError              it was used before it was opened or after it was closed
    │   └── SchemaVersionError            a newer Tellback wrote it, it was not migrated, or its tables are not ours
    ├── ToolError
    │   ├── ToolSchemaError           no JSON schema can be made for a tool's function
    │   └── McpError                  an MCP server cannot be reached, does not answer, or answers nonsense
    └── ChatError
        ├── BudgetExceededError       the request would not fit the token budget
        ├── MaxIterationsError        the loop's cap was reached; carries the messages so far
        ├── OutputValidationError     the answer never matched `output_type`
        └── ProviderError             a model provider failed
            ├── ProviderAuthError         401, 403
            ├── ProviderRequestError      the provider refused the request (400, 404, 413, 422)
            ├── ProviderRateLimitError    429
            ├── ProviderOverloadedError   5xx, 529, overloaded
            ├── ProviderTimeoutError      no answer, or no next chunk, in time
            ├── ProviderConnectionError   could not connect, or the stream was cut off
            └── ProviderResponseError     the answer could not be read

A tool that fails is not in this tree: its failure goes back to the model as an error result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tellback.types import ChatUsage, Message

T = TypeVar("T")


class TellbackError(Exception):
    """Base of every error Tellback raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (workers, test runners), and several have an __init__ of their own.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[TellbackError], args: tuple[Any, ...], state: dict[str, Any]) -> TellbackError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class ConfigurationError(TellbackError):
    """Something is set up wrong; the message says what to change."""


class UnknownModelError(ConfigurationError):
    """No registered provider recognises the model's name."""

    def __init__(self, model: str, known: Sequence[str] = (), note: str = "") -> None:
        self.model = model
        self.known = tuple(known)
        text = f"No provider is registered for model {model!r}."
        if known:
            text += f" Known: {', '.join(known)}."
        text += (
            " Use a name one of these recognises, pass a model object such as CompatibleModel(...),"
            " or add a ProviderRegistration through ChatOptions(providers=with_providers([...]))."
        )
        super().__init__(f"{text} {note}" if note else text)


class MissingKeyError(ConfigurationError):
    """No API key was passed and none is in the environment."""

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
    """An agent's description is wrong at `path`, such as `tools[1].memorySpaceId`."""

    def __init__(self, path: str, problem: str, agent: str = "") -> None:
        self.path = path
        self.problem = problem
        self.agent = agent
        whose = f"Agent {agent!r}" if agent else "The agent's description"
        super().__init__(f"{whose}, at {path}: {problem}" if path else f"{whose}: {problem}")


class FlowError(ConfigurationError):
    """Something is wrong with an agent's routes at `place`, such as `route 'Book a flight', state 'Ask when'`."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place[:1].upper()}{place[1:]}: {problem}")


class InvalidArgumentError(TellbackError, ValueError):
    """A value that was passed cannot be used; nothing was changed."""


class NotFoundError(TellbackError):
    """Nothing of that id is in this scope: it never was, it was erased, or it belongs to someone else."""

    def __init__(self, kind: str, id: str, hint: str = "") -> None:
        self.kind = kind
        self.id = id
        super().__init__(f"There is no {kind} {id!r} for this user.{hint and ' '}{hint}")


def require_found(found: T | None, kind: str, id: str, hint: str = "") -> T:
    """Return what was found for an id; raise `NotFoundError` if that is None."""
    if found is None:
        raise NotFoundError(kind, id, hint)
    return found


class ConversationClosedError(TellbackError):
    """A closed conversation takes no more messages."""

    def __init__(self, id: str) -> None:
        self.id = id
        super().__init__(f"Conversation {id!r} is closed: create a new one to go on.")


class AtomSupersededError(TellbackError):
    """A later atom took its place: only the last of a chain can be superseded."""

    def __init__(self, id: str, superseded_by: str) -> None:
        self.id = id
        self.superseded_by = superseded_by
        super().__init__(f"Atom {id!r} was superseded by {superseded_by!r}: supersede that one, if it still should be.")


class AlreadyDecidedError(TellbackError):
    """The calls were decided before, and the turn that asked has ended."""

    def __init__(self, id: str, call_ids: Sequence[str]) -> None:
        self.id = id
        self.call_ids = tuple(call_ids)
        super().__init__(
            f"Nothing in conversation {id!r} waits for a decision on {', '.join(call_ids) or 'a call'}: it was decided,"
            " or the conversation went on without it. conversations.pending(id) gives what waits."
        )


class AlreadyAnsweredError(TellbackError):
    """A message of that idempotency key was answered before, in a turn whose session is not the one that was passed."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(
            f"That message was answered before, with {text!r:.120}: nothing is done twice. Go on with the session that"
            " followed from it."
        )


class SkillError(TellbackError):
    """A skill cannot be loaded or read; `skill` says which."""

    def __init__(self, skill: str, problem: str) -> None:
        self.skill = skill
        self.problem = problem
        super().__init__(f"Skill {skill!r}: {problem}")


class TurnConflictError(TellbackError):
    """Another turn of the same conversation is running, and did not end within the time to wait."""

    def __init__(self, id: str, turn_id: str, waited: float) -> None:
        self.id = id
        self.turn_id = turn_id
        super().__init__(
            f"Turn {turn_id!r} of conversation {id!r} is still running after {waited:g} seconds."
            " Try again when it is done, or pass a longer wait=... ."
        )


class SessionConflictError(TellbackError):
    """The session is not what is stored: another turn has changed it. Nothing of this turn was saved.

    Or it was to be a new one, and there is one of that id.
    """

    def __init__(self, id: str, version: int, stored: int | None = None) -> None:
        self.id = id
        self.version = version
        self.stored = stored
        found = "a turn of it is running" if stored is None else f"version {stored} is stored"
        super().__init__(
            f"There is a session {id!r} already: choose another id."
            if version == stored
            else f"Session {id!r} was passed in version {version}, but {found}: load it again, and answer then."
        )


class CannedResponseError(TellbackError):
    """None of the canned responses can be said here; `missing` are values that their templates want."""

    def __init__(self, place: str, missing: Sequence[str] = ()) -> None:
        self.place = place
        self.missing = tuple(missing)
        wanted = f" Their templates want: {', '.join(missing)}." if missing else ""
        super().__init__(f"No canned response can be said at {place}.{wanted} Give the agent one that needs none.")


class EmbeddingError(TellbackError):
    """Texts could not be turned into vectors; none were given.

    `retryable` says whether the same call may work later. A provider's own failure is the `__cause__`.
    """

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        self.retryable = retryable
        super().__init__(message)


class ExtractionError(TellbackError):
    """What a model extracted could not be read, also after it was told what was wrong.

    `raw` is what it said last, `usage` what all its calls cost.
    """

    def __init__(self, message: str, raw: str, usage: Sequence[ChatUsage] = ()) -> None:
        self.raw = raw
        self.usage = tuple(usage)
        super().__init__(message)


class ImportFormatError(TellbackError):
    """A file of chats is not what it should be: `path` names it, `problem` says what is wrong and where."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem
        super().__init__(f"{path}: {problem}")


class JobLostError(TellbackError):
    """A job's lease ran out and another worker has taken it over, or it was erased: nothing of it was kept here."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        super().__init__(f"Job {job_id!r} is no longer run by this worker.")


class AccessError(TellbackError):
    """A server does not let it happen."""


class NotAuthenticatedError(AccessError):
    """There is no credential, or it is not valid, or not any more."""


class NotAllowedError(AccessError):
    """The credential is valid, but not for that."""


class RateLimitedError(AccessError):
    """Too many requests with one credential: `retry_after` is in how many seconds there may be more."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class RequestError(TellbackError):
    """A request to a server was refused as it is; nothing was changed."""


class RequestTooLargeError(RequestError):
    """The request's body, or something in it, is larger than the server takes."""


class PreconditionFailedError(RequestError):
    """What was to be changed is not what the request expects it to be: read it again."""


class IdempotencyConflictError(RequestError):
    """The request's idempotency key was used before, for a request that said something else."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"Idempotency key {key!r:.120} was used for another request: a new request needs a new key.")


class RequestInProgressError(RequestError):
    """A request of the same idempotency key is being answered; ask again in a moment."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"The request of idempotency key {key!r:.120} is being answered: ask again in a moment.")


class RemoteError(TellbackError):
    """A server failed, or gave an answer that cannot be used; `status` is the HTTP status, if there was one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)


class RemoteUnavailableError(RemoteError):
    """A server could not be reached, or did not answer in time; the same call may work later."""


class StoreError(TellbackError):
    """The store could not do what was asked.

    Nothing of it was kept, unless `in_doubt`: then the connection broke while the store was committing, and only a
    look at the log tells. Retry with the same idempotency key.
    """

    def __init__(self, message: str, *, in_doubt: bool = False) -> None:
        self.in_doubt = in_doubt
        super().__init__(message)


class StoreUnavailableError(StoreError):
    """The store cannot be opened or reached; the same call may work later."""


class StoreBusyError(StoreError):
    """Someone else held the store locked for too long; the same call may work later."""


class StoreFullError(StoreError):
    """There is no room left on the store's disk."""


class StoreReadOnlyError(StoreError):
    """The store can be read but not written."""


class StoreCorruptError(StoreError):
    """The file is damaged, or is not a database."""


class StoreClosedError(StoreError):
    """The store was used before it was opened, or after it was closed."""


class SchemaVersionError(StoreError):
    """The tables are of another version than this release needs, or belong to another program."""


class ToolError(TellbackError):
    """A tool is defined wrongly, or cannot be had."""


class ToolSchemaError(ToolError):
    """No JSON schema can be made from a function's signature."""


class McpError(ToolError):
    """An MCP server cannot be reached, does not answer in time, or answers what cannot be used."""

    def __init__(self, server: str, problem: str) -> None:
        self.server = server
        self.problem = problem
        super().__init__(f"MCP server {server!r}: {problem}")


class ChatError(TellbackError):
    """A model call or the loop around it could not go on."""


class BudgetExceededError(ChatError):
    """The request is larger than the token budget allows; nothing was sent."""

    def __init__(self, breakdown: Mapping[str, int], total: int, limit: int) -> None:
        self.breakdown = dict(breakdown)
        self.total = total
        self.limit = limit
        parts = ", ".join(f"{name} {count}" for name, count in self.breakdown.items())
        super().__init__(
            f"The request needs about {total} tokens, over the limit of {limit} ({parts})."
            " Shorten the history or the tools, or raise max_context_tokens."
        )


class MaxIterationsError(ChatError):
    """The model still wanted tools when `max_iterations` model calls had been made."""

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
    """The model's answer did not match `output_type`, even after it was told why."""

    def __init__(self, expected: str, problem: str, text: str, messages: Sequence[Message]) -> None:
        self.problem = problem
        self.text = text
        self.messages = tuple(messages)
        super().__init__(f"The model's answer is not a valid {expected}: {problem}. Its text is in .text.")


class ProviderError(ChatError):
    """A provider failed.

    `retryable` says whether the same request may work later, `retry_after` when the provider
    said so itself (seconds), `partial_text` what had been streamed before it failed, and
    `attempts` every failure of the call, retries and backup models included.
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
    """The key is wrong or not allowed to do this."""


class ProviderRequestError(ProviderError):
    """The provider refused the request itself; sending it again will not help."""


class ProviderRateLimitError(ProviderError):
    """Too many requests or tokens."""


class ProviderOverloadedError(ProviderError):
    """The provider is overloaded or failing inside."""


class ProviderTimeoutError(ProviderError):
    """No answer, or no next chunk of it, within the timeout."""


class ProviderConnectionError(ProviderError):
    """The connection could not be made, or broke before the answer was complete."""


class ProviderResponseError(ProviderError):
    """The provider answered with something that cannot be read."""
