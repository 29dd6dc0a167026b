"""For tests, ours and yours: models that need no network, and conversations that are written down."""

from recollect.testing.conversing import Dialogue, play
from recollect.testing.flow_model import FlowModel
from recollect.testing.function import FunctionModel
from recollect.testing.reading import understands
from recollect.testing.scripted import ScriptedModel, ScriptError, Step, answers, calls, raises, says
from recollect.testing.simulating import SimulatedUser, Simulation, simulate

__all__ = [
    "Dialogue",
    "FlowModel",
    "FunctionModel",
    "ScriptError",
    "ScriptedModel",
    "SimulatedUser",
    "Simulation",
    "Step",
    "answers",
    "calls",
    "play",
    "raises",
    "says",
    "simulate",
    "understands",
]
