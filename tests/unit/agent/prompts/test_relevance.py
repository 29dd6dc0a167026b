"""Routes are ranked by the words of a message, and by its meaning if they share no words."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellback.agent.prompts.relevance import MAX_QUERY_LENGTH, TextRanker
from tellback.embed import static
from tellback.embed.static import StaticEmbedder
from tellback.embed.vectors import Vectors
from tellback.errors import ConfigurationError, InvalidArgumentError
from tellback.memory.recall.tokenizer import extract_words


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]


ROUTES = _rows("""
Book a flight | Find and book plane tickets | the user wants to fly somewhere; asks for flights | destination, departure, passengers
Change a flight booking | Move an existing reservation to another date or time | the user wants another date for a flight | booking reference, new date
Cancel a booking | Cancel a trip and pay back what is due | the user no longer wants to travel | booking reference, reason
Online check-in | Check in and give out the boarding pass | the user wants to check in; asks for a boarding pass | booking reference, seat
Lost luggage | Report baggage that did not arrive or is damaged | a bag or suitcase is missing or broken | flight number, bag tag, description
Book a hotel room | Reserve rooms in a hotel | the user needs somewhere to stay | city, arrival, nights, guests
Rent a car | Reserve a rental car | the user wants to hire a vehicle | pick-up place, pick-up date, driver age
Frequent flyer points | Tell the balance of miles and use them | the user asks about miles or status | membership number
Track an order | Tell where a parcel is | the user asks when an order will be delivered | order number
Return an item | Send back a purchase and get a label for it | the user wants to return a product | order number, item, reason
Exchange for another size | Swap clothes for another size or color | the item does not fit | order number, size
Damaged delivery | Handle goods that arrived broken | the product was broken on arrival | order number, photo
Change the delivery address | Correct where an open order is sent | the address of an order is wrong | order number, street, postal code
Product advice | Recommend products from the catalogue | the user does not know which product to buy | budget, use
Redeem a voucher | Apply a gift card or discount code | the user has a code or a gift card | voucher code
Warranty repair | Repair devices that are under warranty | a device stopped working | serial number, purchase date, fault
Open a bank account | Open a current or savings account | the user wants to become a customer | name, birth date, tax number
Block a card | Block a lost or stolen debit or credit card | a card was lost or stolen | last four digits
Card PIN | Set or reset the PIN of a card | the user forgot the PIN | last four digits
Transfer money | Send money to another account | the user wants to pay somebody | recipient, amount, iban
Dispute a transaction | Look into a payment the user does not recognize | an unknown charge; suspected fraud | transaction date, amount
Apply for a loan | Take a request for consumer credit | the user needs a loan | amount, income, term
Mortgage advice | Answer questions on financing a house | the user wants to buy property | price, own funds
Account statement | Send statements and transaction lists | the user asks for a statement | month
Close an account | End the contract and pay out the balance | the user wants to leave the bank | account number
Exchange rates | Tell rates and order foreign currency | the user asks for currency | currency, amount
Report an accident | Take a motor insurance claim | the user had a car accident | policy number, place, time, damage
Home insurance claim | Take a claim for damage to a household | water, fire or storm damage; burglary | policy number, damage
Insurance quote | Calculate what a policy would cost | the user asks for the price of insurance | vehicle, driver age
Change the beneficiary | Change who is paid by a life insurance | the user wants another beneficiary | policy number, person
Mobile plan upgrade | Change to another mobile tariff | the user wants more data | phone number, plan
Internet outage | Find out why the broadband does not work | the connection is down or slow | customer number, router
Roaming | Explain costs of using a phone abroad | the user asks about using the phone in other countries | country
Port a phone number | Take the number along from another operator | the user wants to keep the number | phone number, operator
Invoice question | Explain the bill | the user does not understand an invoice; the amount seems too high | invoice number
Payment plan | Agree on paying in instalments | the user cannot pay | amount, monthly rate
Update payment details | Change the bank details or card used for payment | a payment failed; a new card | iban, card number
Cancel a subscription | End a subscription | the user wants to cancel a plan | customer number, reason
Reset a password | Help with signing in | the user cannot log in; password forgotten | email
Delete personal data | Erase what is stored under data protection law | the user wants privacy rights | email
Book a doctor's appointment | Find a free time with a physician | the user wants to see a doctor | symptom, day, doctor
Renew a prescription | Order medicine again | the user needs a prescription | medicine, dose
Test results | Tell when laboratory results are ready | the user asks for results of a test | patient number
Reserve a table | Reserve a table in the restaurant | the user wants to dine | day, time, guests
Order food | Take an order for delivery or collection | the user wants to order a meal | dishes, address
Allergies and diets | Tell what is in the dishes | the user asks for ingredients, allergens, vegan dishes | allergy
Request leave | Record holidays and days off of an employee | an employee wants vacation | first day, last day
Call in sick | Record sick leave | an employee is ill and cannot work | first day, doctor's note
Expense report | Pay back what an employee spent | an employee files expenses | amount, receipt, cost center
Speak to a person | Hand over to a human agent | the user asks for a human; is angry; complains | topic
""")  # noqa: E501
"""Rows of title, description, conditions and fields."""

UTTERANCES = _rows("""
plain | I'd like to book a flight to Rome for two people in May | Book a flight
plain | can I move my flight to the 14th instead? | Change a flight booking
plain | please cancel my trip to Oslo | Cancel a booking
plain | where do I get my boarding pass | Online check-in
plain | my suitcase never arrived in Madrid | Lost luggage
plain | do you have a hotel room for three nights in Porto? | Book a hotel room
plain | how many miles do I have left? | Frequent flyer points
plain | when will order 88213 be delivered? | Track an order
plain | I want to return these shoes | Return an item
plain | these trousers don't fit, can I have a size larger? | Exchange for another size
plain | the vase was broken when I opened the box | Damaged delivery
plain | I have a discount code but it won't apply | Redeem a voucher
plain | I think someone stole my credit card | Block a card
plain | forgot my pin | Card PIN
plain | there is a charge of 49.99 I do not recognise | Dispute a transaction
plain | send 200 euros to my sister's account | Transfer money
plain | somebody hit my car at the crossroads, an accident | Report an accident
plain | my internet connection is so slow today | Internet outage
plain | why is this month's bill so high? | Invoice question
plain | I can't log in any more | Reset a password
plain | table for four on Friday at eight please | Reserve a table
plain | I'd like to take three days off in August | Request leave
plain | how do I get my taxi receipt paid back? | Expense report
plain | let me talk to a human now | Speak to a person
no word in common | which airline goes to Lisbon on Monday? | Book a flight
no word in common | could we leave on Thursday rather than Tuesday? | Change a flight booking
no word in common | we won't be going after all, refund us | Cancel a booking
no word in common | the airline misplaced our rucksacks | Lost luggage
no word in common | looking for accommodation near the beach | Book a hotel room
no word in common | we are going to drive around the island, what automobiles have you got? | Rent a car
no word in common | it still hasn't come, I have been waiting for two weeks | Track an order
no word in common | I don't like these boots, refund me please | Return an item
no word in common | way too tight around the waist | Exchange for another size
no word in common | screen is cracked straight out of the packaging | Damaged delivery
no word in common | I have moved, please ship it to my new house | Change the delivery address
no word in common | which laptop is good for a student? | Product advice
no word in common | my washing machine is dead after six months | Warranty repair
no word in common | my wallet is gone, someone took it on the train | Block a card
no word in common | I was scammed, this wasn't me paying | Dispute a transaction
no word in common | I'd like to borrow ten thousand | Apply for a loan
no word in common | we have found our dream home, how could we afford it? | Mortgage advice
no word in common | how many dollars would I receive for 500 pounds? | Exchange rates
no word in common | a pipe burst and the kitchen is flooded | Home insurance claim
no word in common | the wifi keeps dropping | Internet outage
no word in common | will calling home from Japan be expensive? | Roaming
no word in common | I am short of cash, may I settle it bit by bit? | Payment plan
no word in common | my account is locked, it doesn't accept my login | Reset a password
no word in common | remove everything you know about me | Delete personal data
no word in common | I've had a fever since yesterday, when may I come in? | Book a doctor's appointment
no word in common | I have run out of my pills | Renew a prescription
no word in common | what did my blood work show? | Test results
no word in common | two pizzas to Main Street 4 | Order food
no word in common | does the soup contain peanuts? | Allergies and diets
no word in common | I caught the flu and am staying in bed | Call in sick
no word in common | you are useless, put me through to your manager | Speak to a person
no word in common | I'm switching to another provider, stop charging me each month | Cancel a subscription
foreign | Quiero reservar un vuelo a Roma | Book a flight
foreign | He perdido mi tarjeta de crédito | Block a card
foreign | ¿Dónde está mi pedido? | Track an order
foreign | Quisiera una mesa para cuatro personas | Reserve a table
foreign | He olvidado mi contraseña | Reset a password
foreign | Ich möchte meinen Flug umbuchen | Change a flight booking
foreign | Mein Koffer ist nicht angekommen | Lost luggage
foreign | Das Internet funktioniert nicht | Internet outage
foreign | Ich brauche einen Termin beim Arzt | Book a doctor's appointment
foreign | Ich will mit einem Menschen sprechen | Speak to a person
foreign | Je voudrais louer une voiture | Rent a car
foreign | Je veux annuler mon abonnement | Cancel a subscription
foreign | J'ai eu un accident de voiture | Report an accident
foreign | Je cherche une chambre d'hôtel à Paris | Book a hotel room
foreign | Je souhaite renvoyer cet article | Return an item
mixed | are there any seats to Athens next weekend | Book a flight
mixed | my meeting got postponed so I need a later departure | Change a flight booking
mixed | is it possible to choose a window seat before I get to the airport | Online check-in
mixed | my backpack was ripped on the conveyor | Lost luggage
mixed | we need somewhere to sleep in Vienna for the weekend | Book a hotel room
mixed | I need wheels at the airport for a week | Rent a car
mixed | can I pay with my miles | Frequent flyer points
mixed | the courier said today but nobody rang | Track an order
mixed | I changed my mind about the jacket, want my money back | Return an item
mixed | I need it in blue and one number smaller | Exchange for another size
mixed | half of the glasses were in pieces | Damaged delivery
mixed | I typed the wrong street when ordering | Change the delivery address
mixed | what would you give a ten year old who likes science? | Product advice
mixed | got a present coupon from my aunt, how do I use it | Redeem a voucher
mixed | the blender won't turn on any more, bought it in spring | Warranty repair
mixed | I'd like to start banking with you | Open a bank account
mixed | freeze my visa right now please | Block a card
mixed | the cash machine says my code is wrong | Card PIN
mixed | wire the rent to my landlord | Transfer money
mixed | somebody bought things with my card in Brazil | Dispute a transaction
mixed | need financing for a new kitchen | Apply for a loan
mixed | how much down payment do I need for an apartment | Mortgage advice
mixed | list of everything I spent in March | Account statement
mixed | I'm moving to a different bank, shut everything down | Close an account
mixed | I need some yen for my holiday | Exchange rates
mixed | I bumped into a parked van | Report an accident
mixed | burglars broke into our flat last night | Home insurance claim
mixed | how much would it be to insure a Golf for my 18 year old son | Insurance quote
mixed | after the divorce my ex should not inherit the life policy | Change the beneficiary
mixed | I run out of gigabytes every month | Mobile plan upgrade
mixed | router blinks red, nothing loads | Internet outage
mixed | do I pay extra for texting in the USA | Roaming
mixed | I'm coming from Vodafone, can I keep my old number | Port a phone number
mixed | you charged me twice | Invoice question
mixed | can't pay it all at once this month | Payment plan
mixed | my visa expired, here is the new one | Update payment details
mixed | I don't want the premium membership anymore | Cancel a subscription
mixed | forgot my login | Reset a password
mixed | gdpr request, wipe my profile | Delete personal data
mixed | my knee hurts, is Dr. Lopez free this week | Book a doctor's appointment
mixed | need more insulin | Renew a prescription
mixed | are my lab values back yet | Test results
mixed | we'd like to have dinner at your place on Saturday, six of us | Reserve a table
mixed | one large margherita and a coke for pick up | Order food
mixed | I'm coeliac, what can I eat | Allergies and diets
mixed | may I be away from the 3rd to the 10th of July | Request leave
mixed | I'm not feeling well, won't come to the office today | Call in sick
mixed | I paid for the client lunch myself, how do I get reimbursed | Expense report
mixed | stop the robot talk, give me somebody real | Speak to a person
misspelled | i wnat to bok a fligth to paris | Book a flight
misspelled | cancle my subscripton | Cancel a subscription
misspelled | pasword fogotten | Reset a password
misspelled | wheres my pacel, ordr 1234 | Track an order
misspelled | lost my crdit card | Block a card
misspelled | hotell rooms in berlin plz | Book a hotel room
misspelled | prescripton renewl | Renew a prescription
misspelled | tabel for 2 tonite | Reserve a table
""")
"""The kind of message, the message, and the route it is about."""

GERMAN_ROUTES = _rows("""
Flug buchen | Flüge suchen und buchen | der Nutzer möchte fliegen | Ziel, Abflug, Passagiere
Flug umbuchen | Eine Buchung auf ein anderes Datum legen | der Nutzer möchte den Flug ändern | Buchungsnummer, Datum
Verlorenes Gepäck | Fehlendes oder beschädigtes Gepäck melden | ein Koffer fehlt | Flugnummer
Hotelzimmer reservieren | Zimmer in einem Hotel buchen | der Nutzer braucht eine Unterkunft | Stadt, Anreise, Nächte
Auto mieten | Einen Mietwagen reservieren | der Nutzer möchte ein Fahrzeug mieten | Ort, Alter
Sendung verfolgen | Sagen, wo ein Paket ist | der Nutzer fragt nach einer Lieferung | Bestellnummer
Artikel zurückgeben | Einen Kauf zurücksenden | der Nutzer möchte etwas zurückschicken | Bestellnummer, Grund
Karte sperren | Eine verlorene oder gestohlene Karte sperren | die Karte wurde gestohlen | Ziffern
Geld überweisen | Geld an ein anderes Konto senden | der Nutzer möchte jemanden bezahlen | Empfänger, Betrag
Internetstörung | Herausfinden, warum das Internet nicht geht | die Verbindung ist langsam oder weg | Kundennummer
Abo kündigen | Ein Abonnement beenden | der Nutzer möchte kündigen | Kundennummer
Passwort zurücksetzen | Hilfe beim Anmelden | der Nutzer kann sich nicht anmelden | E-Mail
Arzttermin vereinbaren | Einen freien Termin beim Arzt finden | der Nutzer möchte zum Arzt | Beschwerden, Tag
Rezept verlängern | Medikamente erneut bestellen | der Nutzer braucht ein Rezept | Medikament
Tisch reservieren | Einen Tisch im Restaurant reservieren | der Nutzer möchte essen gehen | Tag, Uhrzeit, Gäste
Urlaub beantragen | Urlaubstage eines Mitarbeiters eintragen | ein Mitarbeiter möchte Urlaub | erster Tag, letzter Tag
Krank melden | Krankheitstage eintragen | ein Mitarbeiter ist krank | erster Tag
Mit einem Menschen sprechen | An einen Mitarbeiter übergeben | der Nutzer verlangt einen Menschen | Thema
""")
GERMAN_UTTERANCES = _rows("""
German | ich würde gern am Montag nach Rom fliegen | Flug buchen
German | kann ich meinen Flug auf Dienstag verschieben | Flug umbuchen
German | meine Koffer sind nicht da | Verlorenes Gepäck
German | habt ihr noch ein Doppelzimmer in Wien | Hotelzimmer reservieren
German | was kostet ein Mietauto für eine Woche | Auto mieten
German | wo bleiben meine Pakete | Sendung verfolgen
German | wann kommt meine Bestellung an | Sendung verfolgen
German | die Schuhe schicke ich zurück | Artikel zurückgeben
German | mein Geldbeutel mit der Kreditkarte ist weg | Karte sperren
German | überweise 50 Euro an Anna | Geld überweisen
German | das WLAN ist ständig weg | Internetstörung
German | hiermit kündige ich | Abo kündigen
German | ich komme nicht mehr in mein Konto, Kennwort vergessen | Passwort zurücksetzen
German | ich habe Fieber und brauche einen Doktor | Arzttermin vereinbaren
German | meine Tabletten sind alle | Rezept verlängern
German | wir sind zu viert und kommen am Freitag zum Abendessen | Tisch reservieren
German | ich hätte gern drei Tage frei im August | Urlaub beantragen
German | ich liege mit Grippe im Bett und kann nicht arbeiten | Krank melden
German | gib mir einen echten Mitarbeiter | Mit einem Menschen sprechen
""")


Rank = Callable[[str], Sequence[int]]


def _texts(routes: Sequence[Sequence[str]]) -> list[str]:
    return [". ".join(route) for route in routes]


def _count_found(
    rank: Rank, routes: Sequence[Sequence[str]], query: Sequence[Sequence[str]]
) -> dict[str, tuple[int, int]]:
    """Return, by kind, the numbers of messages whose route is in the first 6 and in the first 24."""
    titles = [route[0] for route in routes]
    places: dict[str, list[int]] = defaultdict(list)
    for kind, text, title in query:
        places[kind].append(list(rank(text)).index(titles.index(title)))
    return {
        kind: (sum(position < 6 for position in found), sum(position < 24 for position in found))
        for kind, found in places.items()
    }


def _reaches(found: dict[str, tuple[int, int]], minimum: dict[str, tuple[int, int]]) -> bool:
    assert found.keys() == minimum.keys()
    return all(found[kind][0] >= minimum[kind][0] and found[kind][1] >= minimum[kind][1] for kind in minimum)


@pytest.fixture
def no_bundled_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the bundled embedder fail to load."""

    def fail() -> static.StaticWeights:
        raise ConfigurationError("The files of the package 'wordllama' cannot be read.")

    monkeypatch.setattr(static, "load_weights", fail)


def test_only_plain_messages_share_words_with_their_route() -> None:
    texts = dict(zip([route[0] for route in ROUTES], _texts(ROUTES), strict=True))
    for kind, query, title in UTTERANCES:
        common = {word.term for word in extract_words(query)} & {word.term for word in extract_words(texts[title])}
        assert bool(common) is (kind == "plain") or kind not in ("plain", "no word in common"), query


def test_the_right_route_is_ranked_among_the_first() -> None:
    found = _count_found(TextRanker(_texts(ROUTES)).rank, ROUTES, UTTERANCES)
    minimum = {
        "plain": (24, 24),
        "no word in common": (28, 32),
        "foreign": (7, 12),
        "mixed": (41, 48),
        "misspelled": (7, 8),
    }
    assert _reaches(found, minimum), found


def test_words_and_meaning_together_rank_better_than_either_alone(request: pytest.FixtureRequest) -> None:
    def first(rank: Rank) -> int:
        return sum(found for found, _ in _count_found(rank, ROUTES, UTTERANCES).values())

    vectors = StaticEmbedder().vectors(_texts(ROUTES))
    combined = first(TextRanker(_texts(ROUTES)).rank)
    meaning = first(lambda query: np.argsort(-(vectors @ StaticEmbedder().vectors([query])[0]), kind="stable").tolist())
    request.getfixturevalue("no_bundled_embedder")
    by_words = first(TextRanker(_texts(ROUTES)).rank)
    assert combined > meaning > by_words


def test_messages_and_routes_may_both_be_in_another_language() -> None:
    found = _count_found(TextRanker(_texts(GERMAN_ROUTES)).rank, GERMAN_ROUTES, GERMAN_UTTERANCES)
    assert found["German"][0] >= 14, found


@pytest.mark.usefixtures("no_bundled_embedder")
def test_words_alone_are_used_if_the_embedder_cannot_be_loaded(caplog: pytest.LogCaptureFixture) -> None:
    relevance = TextRanker(_texts(ROUTES))
    assert _count_found(relevance.rank, ROUTES, UTTERANCES)["plain"] == (24, 24)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_word_that_only_one_route_contains_ranks_it_first() -> None:
    texts = [*_texts(ROUTES), "Zenbuk support. Help with the Zenbuk"]
    assert TextRanker(texts).rank("my zenbuk makes a strange noise when I open it")[0] == len(texts) - 1


@pytest.mark.parametrize("query", ["", "  \n", "yes", "ok, do it then", "?!", "\x00"])
def test_a_message_without_content_words_keeps_the_order(query: str) -> None:
    assert TextRanker(_texts(ROUTES)).rank(query) == list(range(len(ROUTES)))


@pytest.mark.parametrize("texts", [[], ["Book a flight"], ["", ""], ["", "Book a flight"], ["...", "?"]])
def test_few_and_empty_texts_can_be_ranked(texts: list[str]) -> None:
    relevance = TextRanker(texts)
    relevance.prepare()
    assert len(relevance) == len(texts)
    assert sorted(relevance.rank("a flight to Rome")) == list(range(len(texts)))


def test_only_the_beginning_of_a_long_message_is_used() -> None:
    relevance = TextRanker(_texts(ROUTES))
    query = ("I lost my suitcase and my bag. " * 100)[:MAX_QUERY_LENGTH]
    assert relevance.rank(query + " Reserve a table. " * 500) == relevance.rank(query)


def test_a_request_within_a_long_message_is_found() -> None:
    story = (
        "Good morning! I have just come home from three wonderful weeks in the mountains with my brother, his husband,"
        " both dogs, and far too much cheese; we walked every day, it hardly rained, and the view from the hut was"
        " incredible. Anyway, enough of that. Could you renew my prescription?"
    )
    first = TextRanker(_texts(ROUTES)).rank(story)[:6]
    assert "Renew a prescription" in [ROUTES[position][0] for position in first]


def test_another_embedder_can_be_used() -> None:
    class Lengths:
        def vectors(self, texts: Sequence[str]) -> Vectors:
            return np.array([[1, 0] if len(text) < 10 else [0, 1] for text in texts], np.float32)

        def words(self, words: Sequence[str]) -> Vectors:
            return np.zeros((len(words), 2), np.float32)

    assert TextRanker(["a long text of its own", "short", "brief"], embedder=Lengths()).rank("tiny") == [1, 2, 0]


def test_a_string_instead_of_a_list_of_texts_is_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="list of strings"):
        TextRanker("Book a flight")


_SOME_TEXTS = st.lists(st.text(max_size=40) | st.sampled_from(_texts(ROUTES)), max_size=40)


@settings(max_examples=60, deadline=None)
@given(_SOME_TEXTS, st.text(max_size=80) | st.sampled_from([query for _, query, _ in UTTERANCES]))
def test_every_text_is_ranked_once_and_equal_texts_keep_their_order(texts: list[str], query: str) -> None:
    order = TextRanker(texts).rank(query)
    assert sorted(order) == list(range(len(texts)))
    seen: dict[str, int] = {}
    for position in order:
        assert seen.get(texts[position], -1) < position
        seen[texts[position]] = position


def test_numpy_and_vectors_are_only_loaded_when_needed() -> None:
    code = (
        "import sys; from tellback.agent.prompts.relevance import TextRanker; ranker = TextRanker(['one', 'two']);"
        "print(sorted({'numpy', 'tokenizers', 'Stemmer'} & set(sys.modules)))"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50)
    assert completed.stdout.strip() == "[]"
