from collections.abc import Sequence
from typing import Any

from tvm.ir import Call, Expr

def gelu(data: Expr) -> Call: ...
def gelu_tanh(data: Expr) -> Call: ...
def leakyrelu(data: Expr, alpha: float = 0.01) -> Call: ...
def relu(data: Expr) -> Call: ...
def silu(data: Expr) -> Call: ...
def softmax(data: Expr, axis: int = -1) -> Call: ...
def log_softmax(data: Expr, axis: int = -1) -> Call: ...
def group_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    num_groups: int,
    channel_axis: int,
    axes: int | Sequence[int],
    epsilon: float = 1e-05,
    center: bool = True,
    scale: bool = True,
) -> Call: ...
def layer_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    axes: int | Sequence[int],
    epsilon: float = 1e-05,
    center: bool = True,
    scale: bool = True,
) -> Call: ...
def rms_norm(data: Expr, weight: Expr, axes: int | Sequence[int] = -1, epsilon: float = 1e-05) -> Call: ...
def pad(
    data: Expr, pad_width: Sequence[int], pad_mode: str | None = "constant", pad_value: float | None = 0.0
) -> Call: ...
def adaptive_avg_pool2d(
    data: Expr,
    output_size: int | Sequence[int] | None = None,
    layout: str = "NCHW",
    out_layout: str | None = None,
) -> Call: ...
def conv1d(
    data: Expr,
    weight: Expr,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "OIW",
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> Call: ...
def conv2d(
    data: Expr,
    weight: Expr,
    strides: int | Sequence[int] = (1, 1),
    padding: int | Sequence[int] = (0, 0),
    dilation: int | Sequence[int] = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> Call: ...
def conv3d(
    data: Expr,
    weight: Expr,
    strides: int | Sequence[int] = (1, 1, 1),
    padding: int | Sequence[int] = (0, 0, 0),
    dilation: int | Sequence[int] = (1, 1, 1),
    groups: int = 1,
    data_layout: str = "NCDHW",
    kernel_layout: str = "OIDHW",
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> Call: ...
def conv2d_transpose(
    data: Expr,
    weight: Expr,
    strides: int | Sequence[int] = (1, 1),
    padding: int | Sequence[int] = (0, 0),
    output_padding: int | Sequence[int] = (0, 0),
    dilation: int | Sequence[int] = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str | None = None,
    out_dtype: str | None = None,
) -> Call: ...
def max_pool1d(
    data: Expr,
    pool_size: int | Sequence[int] = (1,),
    strides: int | Sequence[int] = (1,),
    padding: int | Sequence[int] = (0, 0),
    dilation: int | Sequence[int] = (1,),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCW",
    out_layout: str | None = None,
) -> Call: ...
def max_pool2d(
    data: Expr,
    pool_size: int | Sequence[int] = (1, 1),
    strides: int | Sequence[int] = (1, 1),
    padding: int | Sequence[int] = (0, 0),
    dilation: int | Sequence[int] = (1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
    out_layout: str | None = None,
) -> Call: ...
def avg_pool1d(
    data: Expr,
    pool_size: int | Sequence[int] = (1,),
    strides: int | Sequence[int] = (1,),
    padding: int | Sequence[int] = (0, 0),
    dilation: int | Sequence[int] = (1,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCW",
    out_layout: str | None = None,
) -> Call: ...
def avg_pool2d(
    data: Expr,
    pool_size: int | Sequence[int] = (1, 1),
    strides: int | Sequence[int] = (1, 1),
    padding: int | Sequence[int] = (0, 0),
    dilation: int | Sequence[int] = (1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
    out_layout: str | None = None,
) -> Call: ...
def __getattr__(name: str) -> Any: ...  # the other operators
