class Scriptable:
    def script(
        self,
        *,
        name: str | None = None,
        show_meta: bool = False,
        int_dtype: str = "int32",
        indent_spaces: int = 4,
        verbose_expr: bool = False,
    ) -> str: ...
