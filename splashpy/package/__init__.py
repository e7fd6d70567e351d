# SPDX-License-Identifier: Apache-2.0
"""What the files on disk mean; knows no arrays.

Manifests, installed models, hub repositories, integrity of files. Read
``library.py`` first.
"""
