"""The command line: a file a command, the options they share in ``options``."""
