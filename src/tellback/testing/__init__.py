"""Tools for tests: models that need no network, scripted conversations, simulations and conformance suites."""

from tellback.testing.dialogue import Dialogue, play
from tellback.testing.flow_model import FlowModel
from tellback.testing.models import FunctionModel, ScriptedModel, ScriptError, Step, answers, calls, raises, says
from tellback.testing.nlu import understands
from tellback.testing.simulation import SimulatedUser, Simulation, simulate

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
