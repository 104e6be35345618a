"""Zero-shot CPU schedules."""
from __future__ import annotations
from dataclasses import dataclass
import tvm
from tvm import tirx, s_tir
from tvm.target import Target
from . import build, injective, fast_math, rows, lanes, tile
from .inline import inlined
from .machine import Machine
from .stage import stages_of, Stage

def schedule(func, target):
    machine = Machine.of(target)
    flat = inlined(func)
    stages = stages_of(flat)
    if isinstance(stages, str):
        return func
    works=[x.work for x in stages]
    threads=injective.worth_threads(None if None in works else sum(works), machine)
    body="x"
    if sum(x.init is not None for x in stages)>1: body=rows.emit(stages, machine, threads)
    if isinstance(body,str):
        DBG.append(body)
        parts=[]; i=0
        while i<len(stages):
            s=stages[i]
            if s.init is None: parts.append(injective.emit(s, machine, injective.worth_threads(s.work, machine))); i+=1; continue
            th=injective.worth_threads(s.work, machine)
            done=False
            if i+1<len(stages) and stages[i+1].init is None and any(l.source.same_as(s.stores[0].buffer) for l in stages[i+1].loads) and not any(l.source.same_as(s.stores[0].buffer) for x in stages[i+2:] for l in x.loads):
                for f in (lambda: tile.emit(s,stages[i+1],machine,th), lambda: rows.emit(stages[i:i+2],machine,th)):
                    r=f()
                    if not isinstance(r,str): parts.append(r); i+=2; done=True; break
                    DBG.append(r)
            if done: continue
            r=tile.emit(s,None,machine,th)
            if isinstance(r,str): DBG.append(r); r=rows.emit([s],machine,th)
            if isinstance(r,str): DBG.append(r); r=lanes.emit(s,machine)
            parts.append(r); i+=1
        body=build.seq(*parts)
    return fast_math.rewritten(with_body(flat, body))

DBG=[]
def with_body(func, body):
    root = func.body.block
    block = s_tir.SBlock([], [], [], "root", body, alloc_buffers=root.alloc_buffers)
    return tirx.PrimFunc(func.params, s_tir.SBlockRealize([], True, block), func.ret_type, func.attrs)
