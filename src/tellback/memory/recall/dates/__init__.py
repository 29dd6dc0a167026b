"""Time expressions: `parser` turns "last Friday" or "in May 2023" into time spans, relative to a reference time.

`lexer` tags words with the tables of `vocabulary`, `grammar` has the rules over the tags, and `calendar` does the
arithmetic. The package is pure code; the recall index and the recall service use it.
"""
