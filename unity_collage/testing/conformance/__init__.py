"""The conformance kit: checks whether a backend keeps the promises of backends, one named check for each."""

from .cases import CASES, Case, case
from .cuda_cases import CUDA_CASES
from .examine import examine
from .verdicts import CHECKS, CheckResult, CheckState, Report

__all__ = ["CASES", "CHECKS", "CUDA_CASES", "Case", "CheckResult", "CheckState", "Report", "case", "examine"]
