"""The laboratory's commands, joined to the ``pfdl`` command by entry points."""
