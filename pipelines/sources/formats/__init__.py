"""Readers of file formats, one path per format, each with the exact line of every row.

``files`` opens originals (plain, gzip, zip) as byte streams, ``lines`` finds their lines,
``delimited`` reads CSV and other separated text, ``json_lines`` JSON records, ``literals`` Python
literals, and ``ordered`` sorts rows by key out of core. Rows that can't be taken are rejected with
line and reason; publishers' rules are the sources'.
"""
