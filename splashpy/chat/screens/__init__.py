# SPDX-License-Identifier: Apache-2.0
"""What fills the terminal: the conversation, and help over it."""
