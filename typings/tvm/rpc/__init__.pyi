"""Devices of other machines."""

from .client import RPCSession as RPCSession
from .client import TrackerSession as TrackerSession
from .client import connect_tracker as connect_tracker
from .server import Server as Server
