"""How the values of this package show themselves in notebooks: as ``unity_collage.show`` does, by its public name."""

from __future__ import annotations


class Shown:
    """A base of values that notebooks show. Tables are in package ``report``, above all others: it is asked by name."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        import unity_collage

        return unity_collage.show(self)._repr_html_()
