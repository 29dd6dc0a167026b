"""German: the most frequent expressions."""

from __future__ import annotations

from recollect.memory.recall.dates.languages.table import counts, language, numbered

_UNITS = {
    "minute": ("minute", 1, False),
    "minuten": ("minute", 1, True),
    "stunde": ("hour", 1, False),
    "stunden": ("hour", 1, True),
    "tag": ("day", 1, False),
    "tage tagen": ("day", 1, True),
    "woche": ("week", 1, False),
    "wochen": ("week", 1, True),
    "monat monats": ("month", 1, False),
    "monate monaten": ("month", 1, True),
    "quartal quartals": ("quarter", 1, False),
    "jahr jahres": ("year", 1, False),
    "jahre jahren": ("year", 1, True),
    "jahrzehnt": ("decade", 1, False),
    "jahrzehnte jahrzehnten": ("decade", 1, True),
}

GERMAN = language(
    {
        "D": {
            "heute": (0, None),
            "gestern": (-1, None),
            "vorgestern": (-2, None),
            "morgen": (1, None),
            "übermorgen": (2, None),
            "heute_abend heute_nacht": (0, "night"),
            "heute_morgen heute_früh": (0, "morning"),
            "gestern_abend": (-1, "night"),
        },
        "p": {"vormittag": "morning", "nachmittag": "afternoon", "abend": "evening", "nacht": "night"},
        "u": _UNITS,
        "k": {"wochenende": ("weekend", 1, False), "wochenenden": ("weekend", 1, True)},
        "n": {
            **counts("eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"),
            "ein_paar paar": (2, 5),
            "einigen mehreren": (3, 7),
        },
        "a": {"ein eine einer einem einen": (1, 1)},
        "o": numbered(
            "ersten/erste/erstes zweiten/zweite/zweites dritten/dritte/drittes vierten/vierte/viertes fünften sechsten siebten "
            "achten neunten zehnten"
        ),
        "M": numbered("januar/jänner februar märz april mai juni juli august september oktober november dezember"),
        "W": numbered("montag dienstag mittwoch donnerstag freitag samstag/sonnabend sonntag", 0),
        "S": {"frühling": 0, "frühjahr": 0, "sommer": 1, "herbst": 2, "winter": 3},
        "H": {
            "weihnachten": "christmas",
            "heiligabend": "christmas eve",
            "silvester": "new year's eve",
            "neujahr": "new year",
            "halloween": "halloween",
            "valentinstag": "valentine's day",
            "ostern ostersonntag": "easter",
            "ostermontag": "easter monday",
            "karfreitag": "good friday",
        },
        "K": {"letzte_woche vergangene_woche vorige_woche": -1, "diese_woche": 0, "nächste_woche kommende_woche": 1},
        "Y": {"letztes_jahr letzten_jahres vergangenes_jahr": -1, "dieses_jahr": 0, "nächstes_jahr": 1},
        "l": "letzte letzten letzter letztes letztem vorige vorigen voriges vergangene vergangenen vergangenes",
        "N": "nächste nächsten nächster nächstes nächstem",
        "C": "kommende kommenden kommendes",
        "t": "diese diesen dieser dieses diesem",
        "v": "vor",
        "e": "nach",
        "s": "seit",
        "T": "bis",
        "F": "von",
        "B": "zwischen",
        "&": "und",
        "i": "in im im_jahr im_jahre",
        "j": "während über ums",
        "q": "am um",
        "O": "des vom",
        "h": "der die das dem den",
        "E": {"anfang": (0, 3), "mitte": (1, 3), "ende": (2, 3)},
        "L": {"kürzlich neulich": 30, "letztens": 30},
        "U": "werde wirst wird werden werdet plane plant planen",
        "#": "nummer zimmer seite $ # € £",
        "R": "war ist waren sind hatte haben hat ich wir er sie es",
    },
    named="mai april august",
    counted="wörter leute euro meter kilometer km seiten mal menschen uhr",
    dot_is_ordinal=True,
    when=r"\b(?:wann|seit wann|an welchem tag|in welchem (?:jahr|monat)|welches datum|wie lange ist es her)\b",
    latest=r"\b(?:jetzt|derzeit|aktuell|aktuelle|neueste|neuesten|zuletzt|momentan|immer noch)\b",
    first=r"\b(?:zuerst|ursprünglich|anfangs|erstmals|zum ersten mal)\b",
)
