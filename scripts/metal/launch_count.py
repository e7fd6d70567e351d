# SPDX-License-Identifier: Apache-2.0
"""Print the launches of one cycle of a Qwen3.8-27B pair, without kernels and with."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from kernels.launch_count import KERNEL, Launches, count_cycle  # noqa: E402


def main() -> int:
    stock, ours = count_cycle(kernels=False), count_cycle(kernels=True)
    _print("MLX's operations alone", stock)
    _print("with the kernels", ours)
    print(f"{ours.total} of {stock.total}: {ours.total / stock.total:.1%}")
    return 0


def _print(title: str, launches: Launches) -> None:
    print(f"{title}: {launches.total}")
    for name, times in launches.by_name.most_common():
        told = "one-launch operations and kernels" if name == KERNEL else name
        print(f"  {times:>5}  {told}")
    print()


if __name__ == "__main__":
    sys.exit(main())
