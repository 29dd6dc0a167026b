"""The grammar: regular expressions over tags, in three rounds that each leave fewer and larger pieces.

First what names a time by itself ("8 May", "last week", "two days ago") becomes an `A`; then what leans on such a
piece ("the Friday before …", "the end of …"); then what spans two ("between … and …") or is open ("since …").
"""

from __future__ import annotations

import re

# How many; a day of a month; a year behind what it belongs to.
_N = r"(?:n-?n|[andcy])"
_D = r"(?:(?:n-)?o|d)"
_YEAR = r"(?:,?O?i?h?[yY],?)"
_UNIT = r"[uk]"


def _alternatives(rules: dict[str, str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{name}>{rule})" for name, rule in rules.items()))


POINTS = _alternatives(
    {
        "days": rf"(?:F?{_D}[2T-]{_D}|B{_D}&{_D})O?h?[Mm]{_YEAR}?"
        rf"|(?:F?[Mm]h?{_D}[2T-]h?{_D}|B[Mm]h?{_D}&h?{_D})(?!O?[Mm]){_YEAR}?",
        "date": rf"(?:[Ww],?h?)?(?:{_D}(?:M|Om|m(?=[,.yY]|$))|{_D}OM|[Mm]h?{_D}(?!{_UNIT})){_YEAR}?",
        "month": rf"M{_YEAR}|m,?O?[yY]|[yY],?i?h?M|Yim",
        "weekday": r"[Ww]p?,?O?h?K|K,?q?[Ww]p?",
        "rolling": rf"[lPNC](?:n-?n|[ndcy]){_UNIT}",
        "relative": r"t?[lPNC](?:[ukHQSV]|[WwMm](?![do]))(?!O[hMmySVY])p?|t[ukHQSVWwM](?!O[hMmySVY])p?|(?:[ukWwMmSVH]r)",
        "second": r"[ukWwMmSVHp](?:bl|eN)(?![uk])",
        "ago": rf"{_N}{_UNIT}[Gf]|v{_N}{_UNIT}|(?<!z)i{_N}{_UNIT}(?!b|e)",
        "daypart": r"Dp?|tp|lp",
        "quarter": rf"Q{_YEAR}?|yQ|ou{_YEAR}?",
        "holiday": rf"H{_YEAR}?",
        "season": rf"[SV]{_YEAR}|(?<=[ij])[SV]|(?<=[ij]h)[SV]|(?<=[sbeTE])S|(?<=[sbeT]h)S|(?<=E-)S|(?<=E)V",
        "weekend": r"(?<=[jq]h)k|(?<=[jq])k",
        "decade": r"Z",
        "vague": r"L",
        "period": r"[KY]",
        "bare_month": r"M|(?<=[isTFBE])m|(?<=E-)m|(?<=[FB][Mm][2&T-])m",
        "bare_weekday": r"Wp?|(?<=q)wp?",
        "year": r"(?<=[iOsjTFBbehE])y|(?<=E-)y|(?<=[FB]y[2&T-])y|(?<!#)y(?![xndcuko#zG])",
    }
)

LEANING = _alternatives(
    {
        "nth": rf"[ol](?:{_UNIT}|J)[Oi]h?A",
        "part": rf"E-?[Oi]?h?A|E-?O?h{_UNIT}",
        "shifted": rf"{_N}{_UNIT}[bev]h?[AJ]|(?:[ukp]|J)[bev]h?[AJ]|{_N}{_UNIT}FA",
        "within": r"[ukp]Oh?[AJ]",
        "clipped": r"[Gg]A",
    }
)

RANGES = _alternatives(
    {
        "between": r"Bh?[AJ]&h?[AJ]|F?h?[AJ][2T-]h?[AJ]",
        "open": r"[sbevT]h?[AJ]",
    }
)
