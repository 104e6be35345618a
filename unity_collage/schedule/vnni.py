"""The product of bytes by VNNI as a tensor intrinsic, in the types of LLVM 22."""

from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def dot_product_16x4_u8i8i32(
    A: T.Buffer((4,), "uint8", offset_factor=1),  # type: ignore[valid-type]
    B: T.Buffer((16, 4), "int8", offset_factor=1),  # type: ignore[valid-type]
    C: T.Buffer((16,), "int32", offset_factor=1),  # type: ignore[valid-type]
) -> None:
    with T.sblock("root"):
        T.reads(C[0:16], A[0:4], B[0:16, 0:4])
        T.writes(C[0:16])
        C[T.ramp(T.int32(0), 1, 16)] = T.call_llvm_pure_intrin(
            T.llvm_lookup_intrinsic_id("llvm.x86.avx512.vpdpbusd.512"),
            C.vload([0], dtype="int32x16"),
            T.reinterpret(
                T.broadcast(T.reinterpret(A.vload([0], "uint8x4"), dtype="int32"), 16), dtype="int8x64"
            ),
            B.vload([0, 0], dtype="int8x64"),
            dtype="int32x16",
        )
