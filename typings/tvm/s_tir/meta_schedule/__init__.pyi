"""The tuner of schedules."""

from .tir_integration import tune_tir as tune_tir
