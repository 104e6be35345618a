"""Lower bounds of costs: the least seconds that any kernel of a workload can need, by a roofline.

**What is proved.** A kernel executes the multiplications of its contractions (:mod:`.arithmetic`; Winograd's count for
convolutions). So it needs at least their number over the machine's peak. It reads the weights and inputs and writes the
results that it cannot leave out (:mod:`.work`). So it needs at least those bytes over the peak of the memory level they
are in: weights where the workload says, activations in the nearest level that they fit into. All of this may happen at
the same time, so the bound is the maximum, not the sum. Peaks are measured (:mod:`unity_collage.machine.peaks`) and
enlarged by a margin.

**What is assumed.** Contractions are computed as they are written. No kernel multiplies ``A (B C)`` for ``(A B) C``,
uses Strassen's products or Fourier transforms, or computes equal operands once. A backend declares that with
``Backend.multiplies_as_written``. For any other backend, or one that is not known, multiplications do not count, and
the bytes remain.

**Unions.** ``cost(A + B) >= cost(A)`` does not hold for two parts of one kernel, and it is not used. A fused kernel
need not write the values between ``A`` and ``B``: a sum over a large product writes one number. It may use another
algorithm, and the kernel of ``A`` may be slow. Only the arithmetic is monotone: contractions of ``A`` whose results are
whole in ``A + B`` are counted there too, and the formula contains that.

**If a bound fails.** A cost below its bound proves that the peaks are wrong on this machine. The lazy search then
lowers all bounds by the same factor (:mod:`unity_collage.search.lazy`). That is a guess, so no bound counts in a proof
any more: in the costs that are the result all of them are 0.
"""

from __future__ import annotations

from dataclasses import replace

from ..backends.registry import find
from ..machine.peaks import Machine
from .model import Workload
from .work import Work, work_of


def lower_bound(workload: Workload, machine: Machine) -> float:
    """A lower bound in seconds of every kernel of ``workload`` on ``machine``, without the launch."""
    return least_seconds(work_for(workload), workload.evict_bytes, machine)


def work_for(workload: Workload) -> Work:
    """The least work of every kernel that the backend of ``workload`` may make of it."""
    backend = find(workload.backend)
    widens_bytes = backend is not None and backend.widens_bytes and not workload.schedule
    work = work_of(workload.func, widens_bytes)
    as_written = backend is not None and backend.multiplies_as_written
    return work if as_written else replace(work, flops=0.0)


def least_seconds(work: Work, evict_bytes: int, machine: Machine) -> float:
    """The roofline of ``work`` in seconds, when ``evict_bytes`` of other memory are read before it."""
    near = work.read_bytes + (0 if machine.is_far(evict_bytes) else work.weight_bytes)
    return max(
        machine.compute_seconds(work.flops),
        machine.read_seconds(near),
        machine.weights_seconds(work.weight_bytes, evict_bytes),
        machine.load_seconds(work.read_bytes + work.weight_bytes),
        machine.write_seconds(work.written_bytes),
    )
