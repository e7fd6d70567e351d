# SPDX-License-Identifier: Apache-2.0
"""What keys and slash commands do, one function each.

Each takes the screen it acts on and what was typed after the command. What it cannot do
it raises as an error, which the screen shows.
"""
