"""The English words that comparing texts must know about. Words of other languages pass by unharmed."""

from __future__ import annotations


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _parse_form_table(pairs: str) -> dict[str, str]:
    """`go: went gone, be: was` as {"went": "go", "gone": "go", "was": "be"}."""
    table: dict[str, str] = {}
    for pair in pairs.split(","):
        base, _, forms = pair.partition(":")
        table.update(dict.fromkeys(forms.split(), base.strip()))
    return table


STOPWORDS = _word_set(
    """
    a about above after again against all also am an and any are as at be because been before being below between
    both but by can cannot could d did do does doing don done down during each either else ever few for from further
    get gets getting got had has have having he hence her here hers herself him himself his how however i if in into
    is it its itself just let ll m me might more most much must my myself nor not of off oh ok okay on once only or
    other our ours ourselves out over own re s same shall she should since so some such t than that the their theirs
    them themselves then there these they this those though through to too u under until up upon us ve very was we
    were what whatever when where whether which while who whom whose why will with within without would yeah yes yet
    you your yours yourself yourselves ur im ive dont didnt doesnt isnt wasnt cant couldnt wouldnt wont shouldnt
    havent hasnt thats whats theres heres lets gonna wanna gotta hey hi hello haha hahaha lol omg wow um uh hmm
    """
)

CANONICAL_FORMS = _parse_form_table(
    """
    become: became, begin: began begun, bite: bit bitten, blow: blew blown, break: broke broken, bring: brought,
    build: built, buy: bought, catch: caught, choose: chose chosen, come: came, deal: dealt, draw: drew drawn,
    dream: dreamt, drink: drank drunk, drive: drove driven, eat: ate eaten, fall: fell fallen, feed: fed, feel:
    felt, fight: fought, find: found, fly: flew flown, forget: forgot forgotten, forgive: forgave forgiven, freeze:
    froze frozen, give: gave given, go: went gone, grow: grew grown, hang: hung, hear: heard, hide: hid hidden,
    hold: held, keep: kept, know: knew known, lead: led, learn: learnt, leave: left, lend: lent, lose: lost, make:
    made, mean: meant, meet: met, pay: paid, ride: rode ridden, ring: rang rung, rise: rose risen, run: ran, say:
    said, see: saw seen, seek: sought, sell: sold, send: sent, shake: shook shaken, shine: shone, shoot: shot, show:
    shown, sing: sang sung, sink: sank sunk, sit: sat, sleep: slept, speak: spoke spoken, spend: spent, stand:
    stood, steal: stole stolen, stick: stuck, strike: struck, swear: swore sworn, sweep: swept, swim: swam swum,
    take: took taken, teach: taught, tear: tore torn, tell: told, think: thought, throw: threw thrown, understand:
    understood, wake: woke woken, wear: wore worn, win: won, write: wrote written, child: children kid kids, person:
    people persons, man: men, woman: women, foot: feet, tooth: teeth, mouse: mice, goose: geese, wife: wives, knife:
    knives, shelf: shelves, half: halves, wolf: wolves, mom: mum mommy mummy mother mothers moms mama, dad: daddy
    father fathers dads papa, grandma: grandmother granny nana, grandpa: grandfather granddad, photo: photograph
    picture pic pics photos photographs pictures, movie: film movies films, tv: television, bike: bicycle bikes
    bicycles, vacation: holiday, birthday: bday, tomorrow: tmrw tmr tomoz, girlfriend: gf, boyfriend: bf, favorite:
    fav favourite faves fave, color: colour colours, apartment: apt, please: pls plz, thanks: thx thank, math:
    maths, store: shop shops, restaurant: resto, tonight: tonite, university: uni, college: colleges, information:
    info, morning: mornin, because: cuz coz bc, before: b4, great: gr8, though: tho, through: thru, person: ppl,
    probably: prob probs prolly, about: abt
    """
)

"""Forms that are no spelling of their base, other words for the same thing, and what people type in a hurry."""

NUMBER_WORDS = {
    number: str(value)
    for value, number in enumerate(
        """
        zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
        eighteen nineteen twenty
        """.split()  # noqa: SIM905
    )
} | {"thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "hundred": "100", "thousand": "1000"}
QUANTITY_WORDS = _word_set("once twice couple dozen several few many pair half third second")

"""Words that tell how many, though they are no numbers."""

TIME_WORDS = _word_set(
    """
    yesterday today tonight tomorrow ago last next week weeks weekend weekends month months year years day days
    recently lately soon morning evening night january february march april may june july august september october
    november december jan feb mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday friday
    saturday sunday mon tue wed thu fri sat sun spring summer autumn fall winter christmas halloween thanksgiving
    since gestern heute morgen woche monat jahr ayer hoy mañana semana mes año hier demain semaine mois année
    """
)

"""Words that tell when; a few of other languages too."""

PLACE_WORDS = _word_set(
    """
    home park beach city country town village studio gym cafe restaurant lake mountain mountains street museum
    school church office station airport hotel bar shop store library hospital
    """
)
"""Words that tell where."""
