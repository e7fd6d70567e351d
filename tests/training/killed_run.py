# SPDX-License-Identifier: Apache-2.0
"""A small training run in a process of its own, for a test that kills it.

Usage: killed_run.py DIRECTORY STEPS; the process kills itself after STEPS steps, and
prints a digest of its weights when it gets to the end.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import tiny

from splashpy.training.examples import Example
from splashpy.training.init import Geometry, new_student
from splashpy.training.lessons import Lessons
from splashpy.training.plan import TrainingPlan
from splashpy.training.trainer import Trainer

directory, allowed = Path(sys.argv[1]), int(sys.argv[2])
asked = 0


def killed() -> bool:
    global asked
    if asked == allowed:
        os.kill(os.getpid(), signal.SIGKILL)
    asked += 1
    return False


target = tiny.target()
geometry = Geometry(mask_token_id=259, layers=2, conv_group_size=8, selector_rank=8)
student = new_student(target, geometry)
ids = mx.random.randint(0, 256, (4, 20), key=mx.random.key(0)).tolist()
Trainer(
    student,
    target,
    [Example(tuple(row), 5, "f" * 32) for row in ids],
    Lessons(target, student.network.config.feature_layers),
    TrainingPlan(steps=4, sequences=2, anchors=3, checkpoint_every=2),
    directory,
).run(killed)
weights = b"".join(np.array(array).tobytes() for array in student.weights.values())
print(hashlib.sha256(weights).hexdigest())
