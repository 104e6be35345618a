"""The operators under the name that programs in TVMScript call them by."""

from ..expr import const as const
from ..op import *
