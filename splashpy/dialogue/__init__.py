# SPDX-License-Identifier: Apache-2.0
"""Messages to tokens and tokens to text; knows no arrays.

On the way in: ``conversation.py``, ``template.py``, ``prompt.py``. On the way out:
``detokenizer.py``, ``channels.py``, ``sections.py``, ``stops.py``, put together in
``turn.py``. Read ``prompt.py`` and ``turn.py`` first.
"""
