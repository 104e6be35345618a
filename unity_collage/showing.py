"""The values of this package in notebooks: ``unity_collage.show`` formats them."""

from __future__ import annotations


class Shown:
    """Base class of values that notebooks show.

    Package ``report``, which makes the tables, is above this one in the layers, so it is imported by name when a
    value is shown.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        import unity_collage

        return unity_collage.show(self)._repr_html_()
