"""Skills: instructions with optional tools, which a model reads when it needs them.

They come from functions, folders or a resolver. Chat, agents and applications import this.
"""

from tellback.skills.loader import MAX_BODY as MAX_BODY
from tellback.skills.loader import load_body as load_body
from tellback.skills.loader import load_skills as load_skills
from tellback.skills.resolver import SkillResolver as SkillResolver
from tellback.skills.resolver import build_index as build_index
from tellback.skills.resolver import effective_resolver as effective_resolver
from tellback.skills.resolver import find_skill as find_skill
from tellback.skills.resolver import in_memory_resolver as in_memory_resolver
from tellback.skills.resolver import index_line as index_line
from tellback.skills.resolver import list_skills_of as list_skills_of
from tellback.skills.resolver import search_skills_of as search_skills_of
from tellback.skills.resolver import searchable_resolver as searchable_resolver
from tellback.skills.skill import Skill as Skill
from tellback.skills.skill import SkillFolder as SkillFolder
from tellback.skills.skill import skill as skill
from tellback.skills.skill import skills_for as skills_for
from tellback.skills.toolset import SkillOffer as SkillOffer
from tellback.skills.toolset import builtin_apply_skill as builtin_apply_skill
from tellback.skills.toolset import builtin_list_skills as builtin_list_skills
from tellback.skills.toolset import builtin_read_skill as builtin_read_skill
from tellback.skills.toolset import builtin_search_skills as builtin_search_skills
from tellback.skills.toolset import builtins as builtins
from tellback.skills.toolset import builtins_with_resolver as builtins_with_resolver
