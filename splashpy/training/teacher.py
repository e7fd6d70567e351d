# SPDX-License-Identifier: Apache-2.0
"""The target a drafter is trained for, with its text side, loaded here and now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from splashpy.engine.loading import check_numbers
from splashpy.errors import CapacityError
from splashpy.host.device import device
from splashpy.host.model import Speech
from splashpy.models.loading import load_target
from splashpy.models.target import MlxLmTarget
from splashpy.package.model_directory import ModelDirectory
from splashpy.protocol import LoadProgress
from splashpy.units import format_bytes


@dataclass(frozen=True, slots=True)
class Teacher:
    """Who writes the texts and borrows its embedding and head to the drafter.

    Attributes:
        target: the model.
        speech: its tokenizer and chat template.
        licence: SPDX name of its terms; ``unknown`` where its files do not say.
    """

    target: MlxLmTarget
    speech: Speech
    licence: str = "unknown"

    @classmethod
    def open(
        cls, directory: ModelDirectory, progress: Callable[[LoadProgress], None]
    ) -> Self:
        """Load a model; every later call must come from the same thread.

        Raises:
            SplashError: it cannot be loaded.
        """

        def weights(done: int, total: int) -> None:
            progress(LoadProgress(phase="map", done=done, total=total, unit="bytes"))

        speech = Speech.from_directory(directory, None)
        target = load_target(
            directory.target, directory.config, speech.context_max, weights
        )
        check_numbers(target)
        manifest = directory.manifest
        return cls(
            target, speech, manifest.target.license.spdx if manifest else "unknown"
        )

    @property
    def stops(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return self.speech.tokenizer.eos_token_ids

    def room(self, allowed: int | None = None) -> int:
        """Bytes beside the weights.

        Args:
            allowed: bytes for everything; None is what the machine has.

        Raises:
            CapacityError: the weights alone are more than that.
        """
        machine = device("")
        whole = allowed or machine.working_set_bytes or machine.memory_bytes
        weights = self.target.facts.weight_bytes
        if whole <= weights:
            raise CapacityError(
                f"the target alone takes {format_bytes(weights)}",
                why=f"{format_bytes(whole)} are allowed",
            )
        return whole - weights
