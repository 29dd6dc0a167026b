"""For tests, ours and yours: models that need no network, and conversations that are written down."""

from tellback.testing.conversing import Dialogue, play
from tellback.testing.flow_model import FlowModel
from tellback.testing.function import FunctionModel
from tellback.testing.reading import understands
from tellback.testing.scripted import ScriptedModel, ScriptError, Step, answers, calls, raises, says
from tellback.testing.simulating import SimulatedUser, Simulation, simulate

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
