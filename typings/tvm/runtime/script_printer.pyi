class Scriptable:
    def script(
        self, *, name: str | None = None, show_meta: bool = False, verbose_expr: bool = False
    ) -> str: ...
