"""The least seconds that any kernel of a workload can need: a roofline that errs on the low side.

**What is proved.** A kernel executes the multiplications of its contractions (:mod:`.arithmetic`: Winograd's count
for convolutions), so it needs no less than their number over the machine's peak. It reads the weights and inputs
and writes the results that it cannot do without (:mod:`.work`), so no less than those bytes over the peak of the
place where they are: weights where the workload says, activations as near as they fit. These happen at the same
time, so the bound is the largest of them, not the sum. Peaks are measured (:mod:`.machine`) and enlarged by a
margin.

**What is assumed.** Contractions are computed as they are written: no kernel multiplies ``A (B C)`` for ``(A B)
C``, uses Strassen's products, or computes equal operands once. None of the backends does.

**Unions.** Is ``cost(A + B) >= cost(A)`` for two parts of one kernel? Not in general, and it is not used: a fused
kernel need not write what ``A`` hands to ``B`` (a sum over a large product writes one number); it may be of another
algorithm; and the cost of ``A`` may be that of a bad kernel. The arithmetic alone is monotone: contractions of
``A`` whose results are whole in ``A + B`` are all counted there, and this is in the formula already.

**If a bound fails.** A cost below its bound proves the peaks wrong on this machine; the lazy search then lowers all
bounds by as much (:mod:`unity_collage.search.lazy`).
"""

from __future__ import annotations

from ..machine.peaks import Machine
from .model import Workload
from .work import Work, work_of


def lower_bound(workload: Workload, machine: Machine) -> float:
    """Seconds that no kernel of ``workload`` can beat on ``machine``, without the launch."""
    return least_seconds(work_of(workload.func), workload.evict_bytes, machine)


def least_seconds(work: Work, evict_bytes: int, machine: Machine) -> float:
    """The roofline of ``work`` whose weights lie behind ``evict_bytes`` of other memory."""
    near = work.read_bytes + (0 if machine.is_far(evict_bytes) else work.weight_bytes)
    return max(
        machine.compute_seconds(work.flops),
        machine.read_seconds(near),
        machine.weights_seconds(work.weight_bytes, evict_bytes),
        machine.load_seconds(work.read_bytes + work.weight_bytes),
        machine.write_seconds(work.written_bytes),
    )
