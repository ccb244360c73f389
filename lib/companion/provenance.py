"""Where a result comes from: code, packages, machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_PACKAGES = ("numpy", "scipy", "torch", "scikit-learn", "numba", "papermill")


def provenance(root: Path) -> dict[str, Any]:
    """Describe the code (git commit, or ``None`` without git), the packages, the machine."""
    status = _git(root, "status", "--porcelain", "--", ".", ":!results")  # keeping one run must not taint the next
    return {
        "commit": _git(root, "rev-parse", "HEAD") or None,
        "dirty": None if status is None else bool(status),
        "python": platform.python_version(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name))},
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "gpu": _gpu(),
    }


def _git(root: Path, *arguments: str) -> str | None:
    """Output of a git command; ``None`` where there is no git or no repository."""
    try:
        result = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _gpu() -> str | None:
    """Name of the first NVIDIA GPU, asked of the driver so that nothing has to import torch."""
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.splitlines()[0].strip() if result.stdout.strip() else None
