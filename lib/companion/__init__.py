"""The library of the companion: claims that a machine checks, each with a control that shows the check could fail."""

from companion.checks import claim, report
from companion.errors import CompanionError
from companion.run import start

__all__ = ["CompanionError", "claim", "report", "start"]
