"""Values of a model's answer, and the users' words that support them or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tellback.agent import Agent
from tellback.agent.prompts.evidence import find_missing_evidence
from tellback.testing import Dialogue, says, understands

TODAY = date(2026, 11, 19)  # a Thursday

TEXT = {"type": "string"}
DATE = {"type": "string", "format": "date"}
TIME = {"type": "string", "format": "time"}
MOMENT = {"type": "string", "format": "date-time"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}
NUMBERS = {"type": "array", "items": INTEGER}
EMAIL = {"type": "string", "format": "email"}
OPTIONAL_DATE = {"anyOf": [DATE, {"type": "null"}]}
ADDRESS = {
    "type": "object",
    "properties": {"street": TEXT, "number": TEXT, "zip_code": TEXT, "city": TEXT},
    "required": ["street", "city"],
}


def options(*names: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(names)}


CABIN = options("economy", "business", "first")
TRIP = options("one_way", "round_trip")
DIET = options("vegetarian", "vegan", "halal", "none")
SEAT = options("window", "aisle", "middle")
YES_NO = options("yes", "no")
SIZE = options("small", "medium", "large")
URGENCY = options("low", "normal", "high")
PAYMENT = options("credit_card", "paypal", "invoice", "cash")
REASON = options("damaged", "wrong_item", "not_delivered", "changed_mind")
CONTACT = options("phone", "email", "sms")
MEALS = {"type": "array", "items": options("breakfast", "lunch", "dinner")}
DEPARTMENT = {
    "oneOf": [
        {"const": "er", "description": "Emergency room: accidents, broken bones"},
        {"const": "derm", "description": "Dermatology: skin, rashes, moles"},
        {"const": "ped", "description": "Pediatrics: children and babies"},
    ]
}


@dataclass(frozen=True)
class Case:
    schema: Mapping[str, Any]
    name: str
    value: Any
    words: str | None
    newest: str
    earlier: tuple[str, ...]
    asked: bool

    def __str__(self) -> str:
        return f"{self.name}={self.value} from {self.newest}"[:80]

    def find_missing_evidence(self) -> str | None:
        return find_missing_evidence(
            self.schema, self.name, self.value, self.words, self.newest, self.earlier, asked=self.asked, today=TODAY
        )


def asked(schema: Mapping[str, Any], name: str, value: Any, words: str, newest: str | None = None) -> Case:
    """A value from the answer to the agent's question for this field."""
    return Case(schema, name, value, words, words if newest is None else newest, (), asked=True)


def told(
    schema: Mapping[str, Any], name: str, value: Any, words: str, newest: str | None = None, *earlier: str
) -> Case:
    """A value that the user states without being asked."""
    return Case(schema, name, value, words, words if newest is None else newest, earlier, asked=False)


SUPPORTED = [
    # Names
    asked(TEXT, "name", "Maya Lindqvist", "Maya Lindqvist"),
    asked(TEXT, "name", "John", "john"),
    asked(TEXT, "name", "Priya Raman", "it's Priya, Priya Raman"),
    asked(TEXT, "name", "Sean O'Brien", "sean obrien"),
    asked(TEXT, "last_name", "García", "Garcia", "Garcia, with an accent on the i"),
    asked(TEXT, "full_name", "Anna-Lena Müller", "anna lena mueller"),
    asked(TEXT, "name", "Tomasz Wójcik", "nazywam się Tomasz Wójcik"),
    asked(TEXT, "name", "Иван Петров", "меня зовут Иван Петров"),
    asked(TEXT, "name", "田中太郎", "田中太郎と申します"),
    asked(TEXT, "name", "Yamada Taro", "山田太郎です"),
    asked(TEXT, "name", "Ivan Petrov", "Иван Петров"),
    asked(TEXT, "name", "محمد علي", "اسمي محمد علي"),
    asked(TEXT, "name", "राहुल शर्मा", "मेरा नाम राहुल शर्मा है"),
    told(TEXT, "name", "Dana", "This is Dana", "Hi! This is Dana from accounting, I can't log in"),
    told(TEXT, "patient_name", "Leo Brandt", "my son Leo Brandt", "I need an appointment for my son Leo Brandt"),
    told(TEXT, "company", "Acme GmbH", "Acme GmbH", "We're Acme GmbH, about 40 people, looking for a CRM"),
    asked(TEXT, "company", "Northwind Traders", "northwind traders"),
    asked(TEXT, "name", "Bob Smith", "Smith, Bob"),
    asked(TEXT, "first_name", "Elif", "ben Elif"),
    told(TEXT, "name", "Sofia Rossi", "Sofia Rossi", "Buongiorno, sono Sofia Rossi e vorrei prenotare un tavolo"),
    told(TEXT, "name", "Ana", "Ana", "and can you finally send it?", "hello, Ana here, order 4471 is missing"),
    asked(TEXT, "doctor", "Dr. Weiss", "the one I had last time, Dr Weiss"),
    asked(TEXT, "name", "Chloé", "c'est Chloé"),
    asked(TEXT, "name", "Mr. Tanaka", "Tanaka"),
    told(TEXT, "name", "Jürgen", "juergen", "moin, juergen hier, mein Internet geht nicht"),
    asked(TEXT, "name", "Li Wei", "我叫李伟"),
    asked(TEXT, "name", "김민수", "김민수입니다"),
    # Emails and phone numbers
    asked(EMAIL, "email", "maya@example.org", "maya@example.org"),
    asked(EMAIL, "email", "maya@example.org", "maya at example dot org"),
    asked(EMAIL, "email", "j.doe@mail.example.com", "J.Doe@Mail.Example.com"),
    asked(TEXT, "email", "t.lee@example.com", "t dot lee at example dot com", "sure: t dot lee at example dot com"),
    asked(EMAIL, "email", "max@example.de", "max at example punkt de", "das ist max at example punkt de"),
    asked(EMAIL, "email", "lucia@example.es", "lucia arroba example punto es"),
    asked(EMAIL, "email", "ann_b@example.org", "ann underscore b at example.org"),
    asked(EMAIL, "email", "info@example.com", "info (at) example (dot) com"),
    told(EMAIL, "email", "kim@example.net", "kim@example.net", "write to kim@example.net when it ships, thanks"),
    asked(TEXT, "phone", "+49 151 2345678", "0151 2345678"),
    asked(TEXT, "phone", "5551234567", "(555) 123-4567"),
    asked(TEXT, "phone", "+15551234567", "+1 555 123 4567", "my cell is +1 555 123 4567"),
    asked(TEXT, "phone", "555-0199", "five five five oh one nine nine"),
    asked(TEXT, "phone", "+33 6 12 34 56 78", "06.12.34.56.78"),
    told(TEXT, "phone", "020 7946 0958", "020 7946 0958", "call me back on 020 7946 0958 after lunch"),
    asked(EMAIL, "email", "sara.k@example.com", "sara.k@example.com, but don't spam me"),
    asked(TEXT, "website", "https://example.com", "example.com"),
    asked(TEXT, "phone", "030 1234567", "null drei null eins zwei drei vier fünf sechs sieben"),
    # Codes
    asked(TEXT, "order_id", "A-1001", "a 1001"),
    asked(TEXT, "order_id", "A-1001", "order a1001"),
    asked(TEXT, "order_id", "ORD-2024-0047", "ord 2024 0047"),
    asked(TEXT, "order_id", "4471", "#4471"),
    asked(TEXT, "order_id", "A-1001", "1001"),
    told(TEXT, "order_id", "B7X 99K", "b7x99k", "where is my parcel b7x99k?"),
    asked(TEXT, "booking_code", "QX7LMP", "Q X 7 L M P"),
    asked(TEXT, "flight", "LH 400", "lh400"),
    asked(TEXT, "zip_code", "10115", "10115 Berlin"),
    asked(TEXT, "postcode", "SW1A 1AA", "sw1a1aa"),
    asked(TEXT, "iban", "DE89370400440532013000", "DE89 3704 0044 0532 0130 00"),
    asked(TEXT, "policy_number", "HK-55-12", "it says HK 55 12 on the card"),
    told(TEXT, "order_id", "TB-88", "tb88", "refund tb88 please"),
    asked(TEXT, "version", "3.12.1", "v3.12.1"),
    asked(TEXT, "invoice_number", "2026-118", "invoice number is 2026/118"),
    asked(TEXT, "order_id", "100-2233", "1002233"),
    told(TEXT, "order_id", "100-2233", "order no. 100 2233", "hey, order no. 100 2233 never came"),
    asked(TEXT, "apartment", "3B", "3 b"),
    asked(TEXT, "gate", "B12", "gate b 12"),
    # Dates
    asked(DATE, "departure", "2026-11-20", "tomorrow"),
    asked(DATE, "departure", "2026-11-21", "the day after tomorrow"),
    asked(DATE, "departure", "2026-12-03", "in two weeks"),
    asked(DATE, "departure", "2026-12-05", "the 5th"),
    asked(DATE, "departure", "2026-11-27", "next Friday"),
    asked(DATE, "departure", "2026-11-23", "mon"),
    asked(DATE, "departure", "2026-12-25", "Christmas Day"),
    asked(DATE, "departure", "2026-12-31", "new year's eve"),
    asked(DATE, "departure", "2026-11-26", "thanksgiving"),
    asked(DATE, "departure", "2026-11-30", "end of the month"),
    asked(DATE, "departure", "2026-11-21", "this weekend"),
    asked(DATE, "departure", "2026-11-19", "today"),
    asked(DATE, "departure", "2026-11-19", "asap"),
    asked(DATE, "departure", "2026-11-19", "tonight"),
    asked(DATE, "departure", "2027-05-12", "May 12th"),
    asked(DATE, "departure", "2026-12-01", "first of December"),
    asked(DATE, "departure", "2026-12-24", "24.12."),
    asked(DATE, "departure", "2026-12-24", "24/12"),
    asked(DATE, "departure", "2026-12-24", "2026-12-24"),
    asked(DATE, "departure", "2026-12-01", "early December"),
    asked(DATE, "birthday", "1990-04-03", "3/4/1990"),
    asked(DATE, "birthday", "1990-04-03", "4/3/90"),
    asked(DATE, "birthday", "1985-05-12", "12 May 85"),
    asked(DATE, "birthday", "1985-05-12", "May the twelfth, nineteen eighty-five"),
    asked(DATE, "birthday", "1990-07-15", "15 июля 1990"),
    asked(DATE, "birthday", "1990-07-15", "1990年7月15日"),
    asked(DATE, "birthday", "1972-03-01", "1. März 1972"),
    asked(DATE, "birthday", "1972-03-01", "le premier mars 1972"),
    asked(DATE, "birthday", "1990-01-31", "31011990"),
    told(OPTIONAL_DATE, "departure", "2026-11-20", "morgen", "Ich brauche morgen einen Flug nach Wien"),
    told(DATE, "departure", "2026-11-20", "mañana", "Quiero volar mañana a Madrid"),
    told(DATE, "departure", "2026-11-21", "après-demain", "un billet pour Lyon après-demain svp"),
    told(DATE, "departure", "2026-11-20", "domani", "vorrei un volo per Roma domani"),
    told(DATE, "departure", "2026-11-20", "amanhã", "preciso de um voo amanhã"),
    told(DATE, "departure", "2026-11-21", "overmorgen", "ik wil overmorgen vliegen"),
    told(DATE, "departure", "2026-11-21", "pojutrze", "chcę lecieć pojutrze"),
    told(DATE, "departure", "2026-11-20", "i morgon", "jag vill resa i morgon"),
    told(DATE, "departure", "2026-11-20", "yar\u0131n", "yar\u0131n için bir bilet laz\u0131m"),
    told(DATE, "departure", "2026-11-20", "завтра", "нужен билет на завтра"),
    told(DATE, "departure", "2026-11-20", "明日", "明日の便を予約したい"),
    told(DATE, "departure", "2026-11-20", "明天", "我想订明天的机票"),
    told(DATE, "departure", "2026-11-20", "غدا", "أريد رحلة غدا"),
    told(DATE, "departure", "2026-11-25", "बुधवार", "मुझे बुधवार को जाना है"),
    told(DATE, "departure", "2026-11-26", "in a week", "fly me out in a week"),
    told(DATE, "return_date", "2026-12-12", "come back on the 12th", "leave Dec 5 and come back on the 12th"),
    told(DATE, "return_date", "2026-12-10", "for a week", "I fly on December 3rd for a week"),
    told(DATE, "check_out", "2026-11-23", "three nights", "from tomorrow, three nights"),
    told(DATE, "purchase_date", "2026-11-18", "yesterday", "I bought it yesterday and it's broken"),
    told(DATE, "purchase_date", "2026-11-12", "last Thursday", "I ordered last Thursday"),
    told(DATE, "purchase_date", "2026-10-19", "a month ago", "bought it a month ago"),
    told(DATE, "start", "2026-12-01", "1.12.26", "Start am 1.12.26 wäre gut"),
    told(DATE, "start", "2026-12-15", "mid December", "could we start mid December?"),
    told(DATE, "departure", "2026-11-20", "tomorow", "can i fly tomorow"),
    told(MOMENT, "pickup", "2026-11-20T15:00:00", "tomorrow at 3 pm", "please pick it up tomorrow at 3 pm"),
    asked(DATE, "departure", "2026-11-28", "a week from Saturday"),
    asked(DATE, "departure", "2026-11-20", "tmrw"),
    asked(DATE, "departure", "2026-11-20", "tmr morning"),
    asked(DATE, "departure", "2026-12-19", "a month from now"),
    asked(DATE, "departure", "2027-01-01", "beginning of next year"),
    asked(DATE, "departure", "2027-07-01", "next summer"),
    asked(DATE, "departure", "2027-04-01", "in spring"),
    asked(DATE, "departure", "2026-12-03", "Donnerstag in zwei Wochen"),
    asked(DATE, "departure", "2026-11-27", "freitag nächste woche"),
    asked(DATE, "departure", "2026-11-23", "el lunes que viene"),
    asked(DATE, "departure", "2027-02-14", "Valentine's Day"),
    asked(DATE, "departure", "2026-11-26", "in 7 Tagen"),
    asked(DATE, "departure", "2026-12-24", "vigilia di natale"),
    asked(DATE, "departure", "2027-01-01", "new years"),
    asked(DATE, "birthday", "1979-10-09", "9th of October, 1979"),
    asked(DATE, "birthday", "1979-10-09", "1979/10/9"),
    asked(DATE, "birthday", "1979-10-09", "09101979"),
    asked(DATE, "birthday", "2000-02-02", "2.2.2000"),
    asked(DATE, "birthday", "1995-08-14", "14 août 1995"),
    asked(DATE, "birthday", "1995-08-14", "14 sierpnia 1995"),
    asked(DATE, "birthday", "1995-08-14", "14 Ağustos 1995"),
    asked(DATE, "birthday", "1995-08-14", "१४ अगस्त १९९५"),
    asked(DATE, "birthday", "1995-08-14", "١٤ أغسطس ١٩٩٥"),
    asked(DATE, "birthday", "1990-05-01", "May 1990"),
    told(DATE, "check_in", "2026-12-05", "Dec 5-8", "a room Dec 5-8 for two"),
    told(DATE, "check_out", "2026-12-08", "Dec 5-8", "a room Dec 5-8 for two"),
    told(DATE, "check_in", "2026-12-05", "5.-8. Dezember", "Zimmer vom 5.-8. Dezember"),
    told(DATE, "check_out", "2026-12-08", "5.-8. Dezember", "Zimmer vom 5.-8. Dezember"),
    told(DATE, "check_out", "2026-12-08", "the 8th", "from December 5 to the 8th"),
    # Times
    asked(TIME, "time", "19:30", "half past seven"),
    asked(TIME, "time", "19:00", "7ish"),
    asked(TIME, "time", "12:00", "noon"),
    asked(TIME, "time", "12:00:00", "around noon"),
    asked(TIME, "time", "20:00", "at 8 in the evening"),
    asked(TIME, "time", "20:00", "8pm"),
    asked(TIME, "time", "20:00", "20 Uhr"),
    asked(TIME, "time", "07:30", "halb acht"),
    asked(TIME, "time", "18:45", "quarter to seven"),
    asked(TIME, "time", "19:15", "quarter past 7"),
    asked(TIME, "time", "19:00", "seven o'clock"),
    asked(TIME, "time", "21:00", "a las nueve de la noche"),
    asked(TIME, "time", "20:30", "20h30"),
    asked(TIME, "time", "00:00", "midnight"),
    asked(TIME, "time", "18:30", "1830"),
    told(TIME, "time", "19:00", "19時", "明日19時に2名でお願いします"),
    told(TIME, "time", "19:30", "7:30", "table for two at 7:30 tomorrow"),
    asked(TEXT, "time", "09:00", "nine in the morning"),
    asked(TIME, "time", "20:00", "evening, around eight"),
    asked(TIME, "time", "13:00", "1"),
    asked(TIME, "time", "18:00", "sechs Uhr abends"),
    asked(TIME, "time", "20:15", "viertel nach acht"),
    asked(TIME, "time", "19:45", "viertel vor acht"),
    asked(TIME, "time", "19:45", "dreiviertel acht"),
    asked(TIME, "time", "21:30", "nueve y media"),
    asked(TIME, "time", "20:00", "à vingt heures"),
    asked(TIME, "time", "20:00", "otto di sera"),
    asked(TIME, "time", "19:00", "七時"),
    asked(TIME, "time", "19:00", "晚上七点"),
    asked(TIME, "time", "19:00", "w siódmą wieczorem"),
    asked(TIME, "time", "12:30", "lunchtime, 12:30"),
    asked(TIME, "time", "21:40", "in an hour"),
    asked(TIME, "time", "09:00", "first thing in the morning"),
    asked(TIME, "time", "23:59", "as late as possible"),
    told(TIME, "time", "20:00", "for 5 people at 8", "table for 5 people at 8"),
    # Counts
    asked(INTEGER, "guests", 2, "my wife and I"),
    asked(INTEGER, "guests", 3, "two adults and a child"),
    asked(INTEGER, "passengers", 1, "just me"),
    asked(INTEGER, "passengers", 2, "the two of us"),
    asked(INTEGER, "quantity", 12, "a dozen"),
    asked(INTEGER, "children", 0, "none"),
    asked(INTEGER, "children", 0, "no"),
    asked(INTEGER, "guests", 4, "4"),
    asked(INTEGER, "guests", 4, "we're four"),
    asked(INTEGER, "guests", 4, "wir sind zu viert"),
    asked(INTEGER, "guests", 5, "cinq"),
    asked(INTEGER, "guests", 3, "三人です"),
    asked(INTEGER, "guests", 2, "двое"),
    asked(INTEGER, "guests", 2, "a couple"),
    asked(INTEGER, "guests", 5, "me, my husband and three kids"),
    asked(INTEGER, "age", 34, "thirty-four"),
    asked(INTEGER, "age", 34, "34 years old"),
    asked(INTEGER, "employees", 250, "about two hundred fifty"),
    asked(INTEGER, "nights", 7, "a week"),
    asked(INTEGER, "nights", 14, "two weeks"),
    told(INTEGER, "guests", 2, "table for two", "I'd like a table for two tonight"),
    told(INTEGER, "passengers", 2, "me and my wife", "book a flight to Rome for me and my wife"),
    told(INTEGER, "guests", 4, "Tisch für vier", "Hallo, einen Tisch für vier bitte"),
    told(INTEGER, "guests", 6, "seis", "una mesa para seis, por favor"),
    told(INTEGER, "quantity", 3, "3x", "3x the blue shirt"),
    told(INTEGER, "guests", 2, "2명", "2명 예약해 주세요"),
    asked(INTEGER, "guests", 6, "half a dozen"),
    asked(INTEGER, "guests", 4, "2 couples"),
    asked(INTEGER, "guests", 3, "drei Erwachsene"),
    asked(INTEGER, "guests", 2, "w dwójkę"),
    asked(INTEGER, "guests", 2, "iki kişi"),
    asked(INTEGER, "guests", 5, "5-6"),
    asked(INTEGER, "guests", 6, "5 or 6"),
    asked(INTEGER, "guests", 3, "my parents and me"),
    asked(INTEGER, "children", 2, "a boy and a girl"),
    asked(INTEGER, "children", 0, "no kids"),
    asked(INTEGER, "children", 0, "two adults, no kids"),
    asked(INTEGER, "rooms", 2, "2 double rooms"),
    asked(INTEGER, "age", 41, "I turned 41 in May"),
    asked(INTEGER, "height_cm", 182, "1,82 m"),
    asked(NUMBER, "weight", 82.5, "82.5 kg"),
    asked(INTEGER, "duration_minutes", 90, "an hour and a half"),
    asked(INTEGER, "duration_minutes", 30, "half an hour"),
    asked(INTEGER, "months", 12, "one year"),
    told(INTEGER, "passengers", 3, "3 of us", "3 of us want to go to Malaga on the 5th"),
    told(INTEGER, "passengers", 1, "myself", "a flight to Lima for myself on Monday"),
    told(INTEGER, "guests", 5, "for 5 people at 8", "table for 5 people at 8"),
    told(INTEGER, "guests", 4, "quattro persone", "un tavolo per quattro persone"),
    told(INTEGER, "guests", 4, "vier personen", "een tafel voor vier personen"),
    told(INTEGER, "guests", 2, "två personer", "ett bord för två personer"),
    told(INTEGER, "guests", 2, "dwie osoby", "stolik na dwie osoby"),
    told(INTEGER, "guests", 2, "iki kişilik", "iki kişilik masa"),
    told(INTEGER, "guests", 2, "两位", "两位 今晚七点"),
    # Money
    asked(NUMBER, "budget", 20, "twenty bucks"),
    asked(NUMBER, "budget", 1200, "1.200 €"),
    asked(NUMBER, "budget", 5000, "5k"),
    asked(NUMBER, "budget", 1500, "$1,500"),
    asked(NUMBER, "budget", 19.99, "19,99"),
    asked(NUMBER, "budget", 2_000_000, "2 million"),
    asked(NUMBER, "budget", 2500, "two and a half thousand"),
    told(NUMBER, "refund_amount", 49.9, "49.90", "you charged me 49.90 twice"),
    told(NUMBER, "budget", 800, "under 800 euros", "a laptop under 800 euros"),
    asked(NUMBER, "discount", 0.15, "15%"),
    asked(TEXT, "budget", "5000 EUR", "5k euros"),
    asked(NUMBER, "budget", 1500000, "1.5M"),
    asked(NUMBER, "budget", 1500000, "1.5 mio"),
    asked(NUMBER, "budget", 250, "250€ max"),
    asked(NUMBER, "budget", 3000, "three grand"),
    asked(NUMBER, "budget", 100000, "1 lakh"),
    asked(NUMBER, "budget", 30000, "三万円"),
    # Options
    asked(TRIP, "trip", "one_way", "one way"),
    asked(TRIP, "trip", "one_way", "oneway pls"),
    asked(TRIP, "trip", "round_trip", "return"),
    asked(TRIP, "trip", "round_trip", "hin und zurück"),
    asked(CABIN, "cabin", "economy", "the cheap one"),
    asked(CABIN, "cabin", "economy", "eco"),
    asked(CABIN, "cabin", "business", "biz class"),
    asked(DIET, "diet", "vegetarian", "veggie"),
    asked(DIET, "diet", "vegetarian", "I don't eat meat"),
    asked(DIET, "diet", "none", "no"),
    asked(SEAT, "seat", "window", "window please"),
    asked(SEAT, "seat", "window", "am Fenster"),
    asked(SEAT, "seat", "aisle", "pasillo"),
    asked(YES_NO, "newsletter", "yes", "sure, why not"),
    asked(YES_NO, "newsletter", "no", "nah"),
    asked(SIZE, "size", "large", "L"),
    asked(SIZE, "size", "medium", "the middle one"),
    asked(URGENCY, "urgency", "high", "it's on fire"),
    asked(URGENCY, "urgency", "low", "no rush"),
    asked(PAYMENT, "payment", "credit_card", "visa"),
    asked(PAYMENT, "payment", "credit_card", "by card"),
    asked(REASON, "reason", "damaged", "the screen was cracked"),
    asked(REASON, "reason", "not_delivered", "it never arrived"),
    asked(CONTACT, "contact", "phone", "call me"),
    asked(DEPARTMENT, "department", "derm", "I have a rash on my arm"),
    asked(DEPARTMENT, "department", "er", "I think my wrist is broken"),
    told(SEAT, "seat", "window", "window seat", "one ticket to Oslo, window seat"),
    told(CABIN, "cabin", "business", "business class", "business class to Tokyo on Friday"),
    told(TRIP, "trip", "one_way", "one-way", "I need a one-way flight to Rome"),
    told(DIET, "diet", "vegan", "vegan", "by the way, I'm vegan"),
    told(REASON, "reason", "damaged", "arrived damaged", "my lamp arrived damaged, I want my money back"),
    told(DEPARTMENT, "department", "ped", "my baby", "my baby has a fever"),
    asked(TRIP, "trip", "one_way", "nur hin"),
    asked(TRIP, "trip", "round_trip", "there and back"),
    asked(CABIN, "cabin", "first", "first"),
    asked(CABIN, "cabin", "economy", "whatever is cheapest"),
    asked(SEAT, "seat", "aisle", "not the window"),
    asked(YES_NO, "newsletter", "no", "I'll pass"),
    asked(SIZE, "size", "medium", "M"),
    asked(SIZE, "size", "large", "not small, large"),
    asked(URGENCY, "urgency", "high", "asap!!"),
    asked(PAYMENT, "payment", "cash", "bar"),
    asked(REASON, "reason", "changed_mind", "I just don't like it"),
    asked(REASON, "reason", "wrong_item", "you sent me the blue one"),
    told(REASON, "reason", "wrong_item", "the wrong shoes", "you sent me the wrong shoes"),
    # Booleans
    asked(BOOLEAN, "insurance", True, "yes"),
    asked(BOOLEAN, "insurance", False, "nope"),
    asked(BOOLEAN, "smoker", False, "I'm not"),
    asked(BOOLEAN, "smoker", True, "I do"),
    asked(BOOLEAN, "insurance", True, "yeah go ahead"),
    asked(BOOLEAN, "insurance", True, "ja gerne"),
    asked(BOOLEAN, "insurance", False, "non merci"),
    asked(BOOLEAN, "insurance", True, "はい"),
    asked(BOOLEAN, "insurance", False, "нет"),
    asked(BOOLEAN, "insurance", True, "हाँ"),
    asked(BOOLEAN, "insurance", True, "نعم"),
    asked(BOOLEAN, "allergies", True, "peanuts, unfortunately"),
    told(BOOLEAN, "smoker", False, "non-smoker", "I'm a non-smoker, 34"),
    told(BOOLEAN, "insurance", True, "with insurance", "book it with insurance please"),
    told(BOOLEAN, "newsletter", False, "don't want your newsletter", "and I don't want your newsletter"),
    asked(BOOLEAN, "first_visit", False, "I've been here before"),
    asked(BOOLEAN, "agree", True, "👍"),
    asked(BOOLEAN, "agree", True, "tak"),
    asked(BOOLEAN, "agree", True, "evet"),
    asked(BOOLEAN, "parking", True, "we'll come by car"),
    told(BOOLEAN, "parking", True, "need a parking space", "we also need a parking space"),
    # Lists and objects
    asked(TEXTS, "allergies", ["peanuts", "shellfish"], "peanuts and shellfish"),
    asked(TEXTS, "toppings", ["mushrooms", "olives"], "mushrooms, olives", "mushrooms, olives and that's it"),
    asked(NUMBERS, "ages", [4, 7], "four and seven"),
    asked(MEALS, "meals", ["breakfast", "dinner"], "breakfast and dinner"),
    asked(TEXTS, "allergies", [], "none"),
    told(
        TEXTS, "symptoms", ["fever", "headache"], "fever and a headache", "I've had a fever and a headache since Monday"
    ),
    asked(
        ADDRESS,
        "address",
        {"street": "Main Street", "number": "12", "zip_code": "10115", "city": "Berlin"},
        "Main Street 12, 10115 Berlin",
    ),
    asked(
        ADDRESS,
        "address",
        {"street": "Rue de Rivoli", "number": "5", "city": "Paris"},
        "5 rue de rivoli paris",
        "it's 5 rue de rivoli paris",
    ),
    asked(ADDRESS, "address", '{"street": "Elm St", "number": "9", "city": "Boston"}', "9 elm st, boston"),
    asked(TEXTS, "cities", ["New York", "Los Angeles"], "NYC and LA"),
    asked(TEXTS, "cities", ["Cologne", "Berlin"], "Köln und Berlin"),
    asked(TEXTS, "skills", ["Python", "SQL"], "python & sql"),
    asked(TEXTS, "symptoms", ["cough"], "coughing a lot"),
    told(TEXTS, "items", ["2 pizzas", "1 coke"], "two pizzas and a coke", "two pizzas and a coke please"),
    asked(MEALS, "meals", ["breakfast", "lunch", "dinner"], "all of them"),
    # Cities, abbreviations, translations
    asked(TEXT, "destination", "New York", "NYC"),
    asked(TEXT, "destination", "Los Angeles", "LA"),
    asked(TEXT, "destination", "Rome", "the eternal city"),
    asked(TEXT, "destination", "Cologne", "Köln"),
    asked(TEXT, "destination", "Munich", "nach München bitte"),
    asked(TEXT, "destination", "Rome", "ローマ"),
    asked(TEXT, "destination", "Beijing", "北京"),
    asked(TEXT, "destination", "Moscow", "в Москву"),
    asked(TEXT, "destination", "Cairo", "القاهرة"),
    asked(TEXT, "destination", "Delhi", "दिल्ली"),
    told(TEXT, "destination", "Rome", "to Rome", "I want to fly from Oslo to Rome tomorrow"),
    told(TEXT, "origin", "Oslo", "from Oslo", "I want to fly from Oslo to Rome tomorrow"),
    told(TEXT, "destination", "Munich", "nach München", "Ich möchte morgen von Wien nach München fliegen"),
    told(TEXT, "destination", "Lisbon", "Lisboa", "quero um voo do Porto para Lisboa na sexta"),
    told(TEXT, "destination", "Moscow", "в Москву", "хочу билет из Казани в Москву"),
    told(TEXT, "destination", "Tokyo", "東京", "大阪から東京まで行きたいです"),
    told(TEXT, "destination", "New York", "nyc", "cheapest flight to nyc next week?"),
    told(TEXT, "destination", "Barcelona", "barcelna", "flight to barcelna for 2 pls"),
    told(TEXT, "destination", "Rome", "Rome", "on Friday please", "I want to go to Rome"),
    asked(TEXT, "destination", "San Francisco", "SF", "SF please"),
    asked(TEXT, "destination", "Warsaw", "do Warszawy"),
    asked(TEXT, "destination", "Stockholm", "till Stockholm tack"),
    asked(TEXT, "destination", "Saint Petersburg", "st. petersburg"),
    asked(TEXT, "destination", "Washington, D.C.", "washington dc"),
    asked(TEXT, "destination", "Paris, France", "paris"),
    asked(TEXT, "destination", "Paris Charles de Gaulle", "CDG"),
    told(TEXT, "destination", "Geneva", "nach Genf", "Flug nach Genf morgen"),
    told(TEXT, "destination", "Warsaw", "do Warszawy", "lecę jutro do Warszawy"),
    told(TEXT, "destination", "San Francisco", "SF", "flight to SF tomorrow"),
    asked(TEXT, "company", "International Business Machines", "IBM"),
    # Free texts
    asked(TEXT, "problem", "The screen stays black", "the screen stays black when I turn it on"),
    asked(TEXT, "problem", "App crashes on startup", "it crashes every time I open the app"),
    asked(TEXT, "symptom", "headache", "my head hurts"),
    asked(TEXT, "dish", "the usual", "the usual"),
    asked(TEXT, "occasion", "birthday", "it's my mom's bday"),
    asked(TEXT, "allergies", "none", "no"),
    asked(TEXT, "allergies", "none", "I don't have any"),
    asked(TEXT, "notes", "no", "no"),
    asked(TEXT, "product", "blue running shoes, size 42", "the blue running shoes in 42"),
    asked(TEXT, "job", "nurse", "I work as a nurse", "I work as a nurse in a hospital"),
    asked(TEXT, "language", "German", "Deutsch"),
    asked(TEXT, "language", "English", "en"),
    asked(TEXT, "country", "United States", "USA"),
    asked(TEXT, "country", "United Kingdom", "uk"),
    asked(TEXT, "country", "Spain", "España"),
    told(TEXT, "problem", "cannot log in", "can't log in", "Hi, I can't log in since this morning"),
    told(TEXT, "device", "iPhone 15", "iphone 15", "my iphone 15 won't charge anymore"),
    told(TEXT, "color", "red", "the red one", "I'd take the red one in size M"),
    told(TEXT, "cuisine", "Italian", "italian", "any good italian places nearby?"),
    asked(TEXT, "topic", "refund", "I want my money back"),
    asked(TEXT, "reason", "moving to another city", "I'm moving to Hamburg next month so I don't need it any more"),
    asked(TEXT, "feedback", "great service", "everything was great, the service too!"),
    asked(TEXT, "diet", "gluten-free", "celiac"),
    told(DATE, "departure", "2026-12-01", "2026-12-01", "I'd like to fly to Rome on december 1st"),
    asked(options("personal", "business"), "kind", "business", "business", "it is for my businness"),
    asked(TEXT, "allergies", "nuts", "walnuts and the like"),
    asked(TEXT, "notes", "no special requests", "nothing special"),
    told(TEXT, "problem", "internet is down", "das Internet geht nicht", "Hallo, das Internet geht nicht"),
]

REFUSED = [
    # Words that are about something else
    told(TEXT, "destination", "Rome", "Olso", "Actually no, make it Olso instead", "I want to fly to Rome"),
    told(TEXT, "company", "Maya's businness", "Maya's businness", "I'm Maya and it is for my businness"),
    # Sentences as names
    asked(TEXT, "name", "I was born on 17 May 2001, no sorry, 2002", "I was born on 17 May 2001, no sorry, 2002"),
    asked(TEXT, "name", "good morning", "good morning", "good morning, I have an appointment at 10"),
    asked(TEXT, "company_name", "is that urgent?", "is that urgent?", "is that urgent?"),
    # Names and numbers out of nothing
    asked(TEXT, "name", "John Doe", "hi there"),
    told(TEXT, "name", "John Doe", "hi there"),
    asked(TEXT, "name", "John Smith", "I'd rather not say"),
    asked(TEXT, "name", "Jane", "let me think"),
    asked(TEXT, "name", "Alex", "what do you mean?"),
    asked(TEXT, "name", "John Doe", "why do you need that?"),
    asked(TEXT, "first_name", "Maria", "hola"),
    asked(TEXT, "full_name", "Max Mustermann", "guten Tag"),
    asked(TEXT, "customer_name", "Jean Dupont", "bonjour"),
    asked(TEXT, "name", "John Doe", "yes please"),
    asked(TEXT, "name", "John", "the cheapest one please"),
    told(TEXT, "name", "Sarah", "I need a doctor", "I need a doctor on Monday"),
    told(TEXT, "patient_name", "Emma", "my daughter", "I need an appointment for my daughter"),
    told(INTEGER, "age", 30, "hi there"),
    asked(INTEGER, "age", 30, "hi there"),
    asked(INTEGER, "age", 35, "I'd rather not say"),
    asked(INTEGER, "age", 30, "why?"),
    asked(INTEGER, "age", 30, "hmm, let me think"),
    told(INTEGER, "age", 30, "my daughter", "my daughter has a rash"),
    asked(INTEGER, "guests", 4, "not sure yet"),
    asked(INTEGER, "guests", 2, "hello"),
    asked(INTEGER, "guests", 2, "what's on the menu?"),
    asked(INTEGER, "guests", 4, "3"),
    asked(INTEGER, "guests", 8, "we're four"),
    asked(INTEGER, "passengers", 1, "I don't know"),
    told(INTEGER, "passengers", 1, "I want to fly to Rome"),
    told(INTEGER, "guests", 4, "table tonight", "do you have a table tonight?"),
    told(NUMBER, "budget", 1000, "cheap", "something cheap to Rome"),
    told(INTEGER, "guests", 7, "at 7", "book a table for two at 8"),
    asked(TEXT, "name", "John", "sure"),
    asked(TEXT, "patient", "Jane Roe", "it's for my sister"),
    asked(INTEGER, "guests", 2, "what are your prices"),
    asked(INTEGER, "guests", 3, "two people"),
    asked(INTEGER, "age", 18, "I prefer not to tell"),
    told(INTEGER, "guests", 19, "at 19:00", "a table at 19:00"),
    told(NUMBER, "budget", 500, "not too expensive", "something not too expensive"),
    asked(TEXT, "name", "Thomas Anderson", "call me later"),
    # Placeholders
    asked(TEXT, "name", "Unknown", "hi there"),
    asked(TEXT, "name", "unknown", "my name is not important"),
    asked(TEXT, "phone", "N/A", "I want to book a table"),
    told(TEXT, "email", "null", "I want to book a table"),
    told(TEXT, "destination", "unknown", "I want to fly", "I want to fly somewhere"),
    asked(TEXT, "destination", "not specified", "let me see"),
    told(TEXT, "order_id", "none", "where is my order?"),
    told(TEXT, "name", "user", "hi, I need help"),
    told(TEXT, "company", "TBD", "we need a CRM"),
    told(TEXT, "destination", "None", "tomorrow", "I want to fly tomorrow"),
    told(TEXT, "name", "string", "hello"),
    told(TEXT, "notes", "-", "hello"),
    told(TEXT, "notes", "", "hello"),
    asked(TEXT, "name", "?", "hello"),
    # Emails, phones and codes
    asked(EMAIL, "email", "john@example.com", "I don't have one"),
    asked(EMAIL, "email", "maya@example.com", "maya"),
    told(EMAIL, "email", "john.doe@example.com", "hi, I'm John Doe"),
    asked(EMAIL, "email", "dana@example.com", "dana@example.org"),
    asked(TEXT, "email", "user@example.com", "why do you need my email?"),
    asked(TEXT, "phone", "555-1234", "I'd rather not give it"),
    asked(TEXT, "phone", "+1 555 123 4567", "555 765 4321"),
    told(TEXT, "phone", "123-456-7890", "call me", "please call me tomorrow"),
    asked(TEXT, "order_id", "A-1001", "I can't find it"),
    told(TEXT, "order_id", "A-1001", "my order", "my order is late"),
    asked(TEXT, "order_id", "A-1001", "A-1002"),
    asked(TEXT, "order_id", "12345", "sorry, one moment"),
    asked(TEXT, "zip_code", "10115", "Berlin"),
    told(TEXT, "flight", "LH 400", "my flight", "my flight was cancelled"),
    asked(TEXT, "iban", "DE89370400440532013000", "same as last time"),
    asked(EMAIL, "email", "bob@example.com", "bob at work dot com"),
    asked(TEXT, "phone", "+49 151 2345678", "0151 2345679"),
    asked(TEXT, "order_id", "A-1001", "B-1001"),
    asked(TEXT, "order_id", "ORD-12345", "yes"),
    asked(TEXT, "phone", "unknown", "hello there"),
    # Dates and times
    asked(DATE, "birthday", "1990-01-31", "some time ago"),
    asked(DATE, "birthday", "1990-01-01", "hi there"),
    asked(DATE, "birthday", "1990-01-31", "what format?"),
    told(DATE, "departure", "2026-11-20", "I want to fly to Rome"),
    asked(DATE, "departure", "2026-11-20", "cheapest please"),
    asked(DATE, "departure", "2026-12-01", "I don't know yet"),
    asked(DATE, "departure", "2026-12-06", "December 5th"),
    asked(DATE, "departure", "2027-01-05", "December 5th"),
    asked(DATE, "birthday", "1991-03-04", "4 March 1990"),
    asked(DATE, "birthday", "1990-01-01", "tomorrow"),
    asked(DATE, "birthday", "1984-06-12", "I was born on a Sunday"),
    told(DATE, "birthday", "1996-11-19", "table for two", "a table for two please"),
    told(DATE, "departure", "2024-05-01", "soon", "I want to travel soon"),
    told(DATE, "return_date", "2026-12-12", "fly to Rome", "I want to fly to Rome on December 5th"),
    told(DATE, "departure", "2026-11-20", "flight", "how much is a flight to Rome?"),
    asked(TIME, "time", "19:00", "hello"),
    asked(TIME, "time", "19:00", "whatever works"),
    asked(TIME, "time", "19:00", "at eight"),
    asked(TIME, "time", "18:30", "half past seven"),
    told(TIME, "time", "20:00", "a table", "a table tomorrow please"),
    told(TIME, "time", "19:00", "two", "table for two"),
    asked(DATE, "departure", "2026-11-20", "Rome"),
    asked(DATE, "departure", "2026-12-25", "2 adults"),
    asked(DATE, "birthday", "1990-05-12", "May 12"),
    asked(DATE, "birthday", "1990-01-01", "I'm 36"),
    asked(DATE, "birthday", "1986-11-19", "40 years old"),
    asked(DATE, "departure", "2026-12-24", "25.12."),
    asked(DATE, "birthday", "1995-08-14", "14.08.1994"),
    asked(TIME, "time", "19:00", "8:30"),
    asked(TIME, "time", "19:00", "two people"),
    # Options and booleans
    told(CABIN, "cabin", "economy", "I want to fly to Rome"),
    told(TRIP, "trip", "round_trip", "fly to Rome", "I want to fly to Rome"),
    told(DIET, "diet", "none", "a table for two", "I'd like a table for two"),
    told(SEAT, "seat", "window", "a ticket", "a ticket to Oslo please"),
    asked(SEAT, "seat", "window", "hello"),
    asked(SEAT, "seat", "aisle", "window"),
    asked(CABIN, "cabin", "economy", "what's the difference?"),
    asked(CABIN, "cabin", "business", "I don't know"),
    asked(SIZE, "size", "medium", "let me think about it"),
    told(BOOLEAN, "insurance", True, "I want to fly to Rome"),
    told(BOOLEAN, "newsletter", True, "hello"),
    asked(BOOLEAN, "insurance", True, "how much is it?"),
    asked(BOOLEAN, "smoker", False, "hi"),
    told(BOOLEAN, "smoker", False, "my name is Bob"),
    asked(SEAT, "seat", "window", "no preference, you choose"),
    asked(BOOLEAN, "insurance", True, "what does it cover?"),
    told(BOOLEAN, "pets", False, "two adults", "two adults"),
    told(BOOLEAN, "student", True, "not a student", "I'm not a student"),
    # Texts that the user never wrote
    asked(TEXT, "destination", "Rome", "to Rome", "as soon as possible"),
    told(TEXT, "destination", "Paris", "I want to go to Paris", "I want to go on holiday"),
    told(TEXT, "destination", "Paris", "on holiday", "I want to go on holiday"),
    told(TEXT, "name", "Maya", "my name is Maya", "I need a flight"),
    told(INTEGER, "guests", 4, "for four", "book a table"),
    told(DATE, "departure", "2026-11-20", "tomorrow", "book a flight"),
    told(TEXT, "destination", "Berlin", "flight", "I need a flight"),
    asked(TEXT, "destination", "Berlin", "hello again"),
    asked(TEXT, "destination", "London", "I haven't decided yet"),
    asked(TEXT, "destination", "London", "where can I go?"),
    asked(TEXT, "destination", "Paris", "I want to speak to a human"),
    asked(TEXT, "destination", "Paris", "um, no idea"),
    asked(TEXT, "destination", "Paris", "can you recommend something?"),
    told(TEXT, "destination", "New York", "the big one", "I'd like the big one"),
    asked(TEXT, "allergies", "peanuts", "no"),
    asked(TEXT, "allergies", "none", "hello"),
    # Lists and objects
    told(TEXTS, "allergies", ["peanuts", "gluten"], "peanuts", "I'm allergic to peanuts, is that ok for the kitchen?"),
    asked(TEXTS, "allergies", ["peanuts"], "hi"),
    asked(TEXTS, "allergies", ["peanuts", "gluten"], "peanuts"),
    asked(NUMBERS, "ages", [4, 9], "four and seven"),
    asked(
        ADDRESS,
        "address",
        {"street": "Main Street", "number": "12", "zip_code": "10115", "city": "Berlin"},
        "I'd rather not say",
    ),
    asked(ADDRESS, "address", {"street": "Elm St", "number": "9", "zip_code": "02101", "city": "Boston"}, "9 elm st"),
    told(TEXTS, "symptoms", ["fever", "cough"], "I feel sick", "I feel sick"),
]


@pytest.mark.parametrize("case", SUPPORTED, ids=str)
def test_value_is_supported(case: Case) -> None:
    assert case.find_missing_evidence() is None


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_value_is_refused(case: Case) -> None:
    assert case.find_missing_evidence() is not None


INVENTED: list[tuple[dict[str, Any], str, Any]] = [
    *((TEXT, "name", "John Doe"), (INTEGER, "age", 30), (DATE, "birthday", "1990-01-31"), (TEXT, "city", "Paris")),
    *((EMAIL, "email", "john@example.com"), (TEXT, "phone", "555-123-4567"), (TEXT, "order_id", "A-1001")),
    *((INTEGER, "guests", 2), (TIME, "time", "19:00"), (CABIN, "cabin", "economy"), (BOOLEAN, "insurance", True)),
    *((TEXTS, "allergies", ["peanuts"]), (DATE, "departure", "2026-11-20")),
]


@pytest.mark.parametrize(
    "newest",
    [
        *("hi there", "hello, how are you?", "hmm", "let me think", "why do you ask?", "I'd rather not say", "lol"),
        *("what do you mean", "can you help me", "I need help", "not now", "I have a problem", "talk to a human"),
        *("this is taking too long", "I already told you", "never mind", "thanks", "please hurry", "forget it"),
        *("what's next", "sorry, one sec", "guten Tag", "keine Lust", "no quiero decirlo", "cancel", "depends"),
        *("je préfère ne pas répondre", "nie wiem", "bilmiyorum", "わかりません", "не скажу", "you tell me"),
        *("I don't understand", "maybe later", "just browsing", "how long does it take", "can I do this online"),
    ],
)
def test_a_reply_without_an_answer_supports_no_value(newest: str) -> None:
    for schema, name, value in INVENTED:
        for is_asked in (True, False):
            case = Case(schema, name, value, newest, newest, (), asked=is_asked)
            assert case.find_missing_evidence() is not None, name


@pytest.mark.parametrize("newest", ["I'd rather not", "not now", "never mind", "I'll pass", "prefiero no"])
def test_a_refusal_answers_a_question_that_can_be_denied(newest: str) -> None:
    for schema, value in ((BOOLEAN, False), (YES_NO, "no")):
        assert asked(schema, "newsletter", value, newest).find_missing_evidence() is None


async def test_words_of_one_field_do_not_answer_another() -> None:
    agent = Agent("Travel")
    fields = {"destination": TEXT, "passengers": INTEGER}
    route = agent.create_route("Book a flight", gather_schema={"type": "object", "properties": fields})
    route.initial_state.transition_to(chat_state="Ask where to and how many", gather=[*fields])
    dialogue = Dialogue(agent)
    await dialogue.begins(says("Where to, and how many?"))
    reading = understands(destination="Rome", passengers=1, words={"destination": "Rome", "passengers": "to Rome"})
    await dialogue.says("To Rome.", reading, says("How many?"))
    dialogue.expect(data={"destination": "Rome", "passengers": None})
    await dialogue.says("Just me", understands(passengers=1, words={"passengers": "Just me"}), says("Thanks"))
    dialogue.expect(data={"destination": "Rome", "passengers": 1})


@pytest.mark.parametrize(
    ("schema", "name", "value", "newest", "is_supported"),
    [
        (DATE, "departure", "2026-11-20", "to Rome tomorrow", True),
        (DATE, "departure", "2026-11-20", "to Rome", False),
        (TEXT, "destination", "Rome", "to Rome tomorrow", True),
        (TEXT, "destination", "Rome", "the eternal city", True),
        (TEXT, "destination", "Rome", "I would like to see some old churches and ruins", False),
        (TEXT, "name", "John Doe", "", False),
    ],
)
def test_without_quoted_words_the_newest_message_counts(
    schema: Mapping[str, Any], name: str, value: Any, newest: str, is_supported: bool
) -> None:
    case = Case(schema, name, value, None, newest, (), asked=True)
    assert (case.find_missing_evidence() is None) == is_supported


schemas = st.sampled_from(
    [TEXT, DATE, TIME, INTEGER, NUMBER, BOOLEAN, TEXTS, OPTIONAL_DATE, ADDRESS, DIET, SIZE, MEALS, DEPARTMENT]
)
snippets = st.text(max_size=12) | st.sampled_from(
    ["tomorrow", "me and two kids", "no", "2026-11-20", "19:30", "?", "…"]
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | snippets | st.just(10**400)
json_values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


@example(INTEGER, "count", 10**400, None, "1", True)
@given(schemas, st.text(max_size=8), json_values, st.none() | snippets, snippets, st.booleans())
def test_any_value_and_any_words_are_checked_without_an_error(
    schema: Mapping[str, Any], name: str, value: Any, words: str | None, newest: str, is_asked: bool
) -> None:
    for quote in (words, newest):
        reason = Case(schema, name, value, quote, newest, ("Hi",), asked=is_asked).find_missing_evidence()
        assert reason is None or reason


@given(st.text(min_size=1).filter(str.strip), snippets, snippets, st.booleans())
def test_a_text_that_the_newest_message_contains_is_supported(
    value: str, before: str, after: str, is_asked: bool
) -> None:
    case = Case(TEXT, "note", value, value, f"{before} {value} {after}", (), asked=is_asked)
    assert case.find_missing_evidence() is None


@given(st.integers(0, 10**15), snippets, snippets, st.booleans())
def test_a_number_that_the_newest_message_contains_is_supported(
    value: int, before: str, after: str, is_asked: bool
) -> None:
    case = Case(INTEGER, "count", value, str(value), f"{before} {value} {after}", (), asked=is_asked)
    assert case.find_missing_evidence() is None


@given(
    st.text("bcdf ", min_size=1).filter(str.strip),
    st.text("stuvw .?", min_size=1).filter(str.strip),
    st.lists(st.text("stuvw ")),
)
def test_a_text_without_common_words_is_only_supported_by_an_answer(
    value: str, newest: str, earlier: list[str]
) -> None:
    assert Case(TEXT, "city", value, newest, newest, tuple(earlier), asked=False).find_missing_evidence() is not None
    assert Case(TEXT, "name", value, newest, newest, tuple(earlier), asked=True).find_missing_evidence() is not None
