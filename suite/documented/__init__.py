"""Checks of documented statements, one function each, and the processes that they run in.

A check is a function of a ``Stack``. It returns a sentence if the statement holds, and raises ``DisprovedError`` if
not: that is a FAIL, and becomes a WAIVED where a waiver knows it. ``NotHereError``: this device cannot answer.
Each tests what is *documented*, so that it turns green when the fault is mended upstream. The list of them, with what
they cite, is ``cases.statements``.
"""
