"""Skills: instructions with optional tools, which a model reads when it needs them.

Skills come from functions, folders or a resolver.
"""

from tellback.skills.loader import MAX_BODY, load_body, load_skills
from tellback.skills.resolver import (
    SkillResolver,
    build_index,
    effective_resolver,
    find_skill,
    in_memory_resolver,
    index_line,
    list_skills_of,
    search_skills_of,
    searchable_resolver,
)
from tellback.skills.skill import Skill, SkillFolder, skill, skills_for
from tellback.skills.toolset import (
    SkillOffer,
    builtin_apply_skill,
    builtin_list_skills,
    builtin_read_skill,
    builtin_search_skills,
    builtins,
    builtins_with_resolver,
)

__all__ = [
    "MAX_BODY",
    "Skill",
    "SkillFolder",
    "SkillOffer",
    "SkillResolver",
    "build_index",
    "builtin_apply_skill",
    "builtin_list_skills",
    "builtin_read_skill",
    "builtin_search_skills",
    "builtins",
    "builtins_with_resolver",
    "effective_resolver",
    "find_skill",
    "in_memory_resolver",
    "index_line",
    "list_skills_of",
    "load_body",
    "load_skills",
    "search_skills_of",
    "searchable_resolver",
    "skill",
    "skills_for",
]
