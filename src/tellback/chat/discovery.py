"""Choose a model when the application sets none: the first built-in provider that is ready wins.

`registry.BUILTIN_MODULES` has the order; the offline model needs nothing and comes last."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from tellback.chat.model import Model
from tellback.chat.offline import OFFLINE, is_offline
from tellback.chat.registry import BuiltinProvider, FoundModel, load_builtin_providers

log = logging.getLogger(__name__)

AUTO = "auto"
MODEL_VARIABLE = "TELLBACK_MODEL"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The name of the chosen model, and the reason for the choice.

    >>> choose_model("gpt-5").name
    'gpt-5'
    """

    name: str
    why: str

    @property
    def is_offline(self) -> bool:
        """Whether it is the offline model, so that answers only quote memory."""
        return is_offline(self.name)


def choose_model(name: str | None = None, env: Mapping[str, str] | None = None) -> ModelChoice:
    """Choose the model: `name`, else `TELLBACK_MODEL`, else the first built-in provider that is ready.

    The name "auto" means no name. Only if no key and no GGUF file is set up, this looks for an Ollama server, for at
    most half a second.

    >>> choose_model(env={"OPENAI_API_KEY": "..."}).name
    'gpt-5'
    """
    env = os.environ if env is None else env
    named = ((name, "it was passed"), (read_variable(env, MODEL_VARIABLE), f"{MODEL_VARIABLE} is set"))
    for model_name, why in named:
        if model_name and model_name.lower() != AUTO:
            return ModelChoice(model_name, why)
    without_package: list[str] = []
    for found in _find_models(env):
        if found.is_ready and found.model is not None and found.model != OFFLINE:
            return ModelChoice(found.model, found.note)
        if found.is_package_missing:
            without_package.append(found.note)
    for note in without_package:  # otherwise, answers would be quotations although a key is set
        log.warning("%s", note)
    nothing = "no key is set, no Ollama answers, and no GGUF file is configured"
    return ModelChoice(OFFLINE, "; ".join(without_package) or nothing)


def resolve_model(model: str | Model | None) -> str | Model | None:
    """Resolve a configured model: "auto" becomes the chosen model, and the offline model becomes None.

    >>> resolve_model("gpt-5"), resolve_model("offline")
    ('gpt-5', None)
    """
    if isinstance(model, str) and model.lower() == AUTO:
        model = choose_model().name
    return None if is_offline(model) else model


def survey_models(env: Mapping[str, str] | None = None) -> list[FoundModel]:
    """List all models that could answer here, with what was found or is missing; keys are not shown.

    >>> [each.provider for each in survey_models({}) if each.is_ready][-1]
    'offline'
    """
    env = os.environ if env is None else env
    return list(_find_models(env))


def _find_models(env: Mapping[str, str]) -> Iterator[FoundModel]:
    for provider in load_builtin_providers():
        if provider.find is not None:
            yield provider.find(env)
        elif provider.key_variables:
            yield _find_keyed_model(provider, env)


def _find_keyed_model(provider: BuiltinProvider, env: Mapping[str, str]) -> FoundModel:
    variable = next((name for name in provider.key_variables if read_variable(env, name)), None)
    is_ready = variable is not None and is_installed(provider.sdk)
    if variable is None:
        note = f"{' or '.join(provider.key_variables)} is not set"
    elif is_ready:
        note = f"{variable} is set"
    else:
        note = f"{variable} is set, but the package is missing: pip install 'tellback[{provider.extra}]'"
    is_package_missing = variable is not None and not is_ready
    return FoundModel(provider.display_name, provider.default_model, is_ready, note, is_package_missing)


def read_variable(env: Mapping[str, str], variable: str) -> str | None:
    """Return the variable's value without surrounding spaces, or None if it is not set or blank."""
    return env.get(variable, "").strip() or None


def is_installed(package: str) -> bool:
    """Whether a package can be imported; this does not load it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the parent of a subpackage is missing
        return False
