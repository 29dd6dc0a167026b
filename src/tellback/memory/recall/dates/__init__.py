"""Time expressions: `parser` turns "last Friday" or "in May 2023" into time spans, seen from a reference time.

`lexer` tags words with the tables of `vocabulary`, `grammar` holds the rules over the tags, `calendar` does the
arithmetic. Pure code; the recall index and the recall service use it.
"""
