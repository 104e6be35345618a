"""Devices that are other machines: servers behind a tracker of TVM compute regions of a program."""

from .device import RemoteDevice
from .run_remotely import RunRemotely

__all__ = ["RemoteDevice", "RunRemotely"]
