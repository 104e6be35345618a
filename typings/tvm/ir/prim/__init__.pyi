from .expr import *
