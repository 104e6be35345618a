"""The conformance kit: does a backend keep what backends promise? One named check for each promise."""

from .cases import CASES, Case, case
from .examine import examine
from .verdicts import CHECKS, CheckResult, CheckState, Report

__all__ = ["CASES", "CHECKS", "Case", "CheckResult", "CheckState", "Report", "case", "examine"]
