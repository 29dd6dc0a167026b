"""For tests, ours and yours: models that need no network, and conversations that are written down."""

from tellback.testing.dialogue import Dialogue as Dialogue
from tellback.testing.dialogue import play as play
from tellback.testing.flow_model import FlowModel as FlowModel
from tellback.testing.models import FunctionModel as FunctionModel
from tellback.testing.models import ScriptedModel as ScriptedModel
from tellback.testing.models import ScriptError as ScriptError
from tellback.testing.models import Step as Step
from tellback.testing.models import answers as answers
from tellback.testing.models import calls as calls
from tellback.testing.models import raises as raises
from tellback.testing.models import says as says
from tellback.testing.nlu import understands as understands
from tellback.testing.simulation import SimulatedUser as SimulatedUser
from tellback.testing.simulation import Simulation as Simulation
from tellback.testing.simulation import simulate as simulate
