# SPDX-License-Identifier: Apache-2.0
"""What the files on disk mean; knows no arrays but numpy's, and few modules those.

Manifests, installed models, hub repositories, integrity of files. Read
``library.py`` first. ``splash/`` knows another project's packages, ``weights/`` the
numbers in weight files.
"""
