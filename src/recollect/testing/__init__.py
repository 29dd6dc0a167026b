"""For tests, ours and yours: models that need no network, and conversations that are written down."""

from recollect.testing.function import FunctionModel
from recollect.testing.reading import understands
from recollect.testing.scripted import ScriptedModel, ScriptError, Step, answers, calls, raises, says

__all__ = ["FunctionModel", "ScriptError", "ScriptedModel", "Step", "answers", "calls", "raises", "says", "understands"]
