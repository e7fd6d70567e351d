# SPDX-License-Identifier: Apache-2.0
"""Messages to tokens and tokens to text; knows no arrays.

Templates, tokenizer, detokenizer, reasoning split, stop strings. Read ``turn.py``
first.
"""
