# SPDX-License-Identifier: Apache-2.0
"""Tool calls in the text of an answer, found and read while the text arrives.

``formats.py`` knows how each family of models writes a call, ``parser.py`` walks
through the text of an answer and hands what lies between the markers to a reader: for
tags with names (``tags.py``), pairs of tags (``pairs.py``), tags of control tokens
(``xtml.py``), JSON (``json_call.py``), or literals that are read when they are complete
(``literals.py``). All of them look at one character after the other, so how the text
was cut into pieces changes nothing.

Start with ``parser.py``.
"""
