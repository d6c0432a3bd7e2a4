"""Waiting in generated code: barriers within a product, and the native half of the thread pool."""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.values import I32, I64, PTR, VOID

PAUSES = 2000  # turns of a spin loop before it starts to give up its time slice (~50 µs)
IDLE = 6000  # turns that an idle worker spins before it parks (~0.2 ms)

# Words of the pool's control block, one cache line each; one word per worker from STATES on.
GENERATION, JOB_FUNCTION, JOB_PARAMS, JOB_THREADS, DONE, WAKE, STATES = range(7)
LINE = 64
# A worker is AWAKE (spinning in ``serve``, may park), SUMMONED (spinning, waits for its job), or
# PARKED (blocked in Python on its own lock).
AWAKE, PARKED, SUMMONED = range(3)

# Words of a job for the threads of an OpenMP runtime, one cache line each; see ``openmp.py``.
TEAM_SIZE, TEAM_FUNCTION, TEAM_PARAMS, TEAM_THREADS, TEAM_TICKET, TEAM_RESULT, TEAM_WORDS = range(7)


def relax(f: Function) -> None:
    """One polite step of a spin loop."""
    if f.module.triple.startswith(("x86_64", "amd64")):
        f.b.call(f.declare("llvm.x86.sse2.pause", VOID, []), [])
    else:
        f.b.call(f.declare("llvm.aarch64.hint", VOID, [I32]), [ir.Constant(I32, 1)])


def spin_until(f: Function, condition) -> None:
    """Wait for ``condition()``; pause at first, then give up the time slice at every turn."""
    yield_slice = f.declare("sched_yield", I32, [])
    with f.counted_forever() as (turn, done):
        f.leave(done, condition())
        with f.either(turn < PAUSES) as (soon, late):
            with soon:
                relax(f)
            with late:
                f.b.call(yield_slice, [])


def barrier(module: ir.Module) -> Function:
    """``barrier(counter, threads)``: returns when all threads have called it equally often.

    The counter only grows, so one word serves every barrier of a call.
    """
    f = Function(module, "barrier", {"counter": PTR, "threads": I64})
    counter, threads = f.args()
    mine = f.fetch_add(counter, 1)
    target = (mine // threads + 1) * threads
    spin_until(f, lambda: f.load_atomic(counter) >= target)
    f.ret()
    return f


def emit_pool(module: ir.Module) -> None:
    """Emit ``rouse``, ``lead``, ``dismiss``, ``serve`` and, for others' threads, ``member``.

    A job takes three steps, so that an interrupt between any two leaves the pool usable: *rouse*
    summons the workers and notes in the word WAKE which of them are parked; Python releases their
    locks; *lead* publishes the job, does the caller's part and waits for the others, in one call
    that no signal handler can cut short. *dismiss* undoes a rouse that no lead followed.
    """
    _emit_rouse(module)
    _emit_lead(module)
    _emit_dismiss(module)
    _emit_serve(module)
    _emit_member(module)


def _emit_rouse(module: ir.Module) -> None:
    f = Function(module, "rouse", {"control": PTR, "threads": I64}, export=True)
    control, threads = f.args()
    wake = control + WAKE * LINE
    with f.loop(1, threads) as worker:
        was = f.exchange(control + (worker.i + STATES) * LINE, SUMMONED)
        bit = f.select(was.eq(PARKED), f.i64(1) << worker.i, 0)
        f.store(f.load(wake, I64, 8) | bit, wake, 8)
    f.ret()


def _emit_dismiss(module: ir.Module) -> None:
    f = Function(module, "dismiss", {"control": PTR, "threads": I64}, export=True)
    control, threads = f.args()
    with f.loop(1, threads) as worker:
        f.compare_exchange(control + (worker.i + STATES) * LINE, SUMMONED, AWAKE)
    f.ret()


def _emit_lead(module: ir.Module) -> None:
    args = {"control": PTR, "function": I64, "params": I64, "threads": I64}
    f = Function(module, "lead", args, I64, export=True)
    control, function, params, threads = f.args()
    # A sequence lock: the generation is odd while the job is being written.
    f.fetch_add(control + GENERATION * LINE, 1)
    f.store(function, control + JOB_FUNCTION * LINE, 8)
    f.store(params, control + JOB_PARAMS * LINE, 8)
    f.store(threads, control + JOB_THREADS * LINE, 8)
    f.fetch_add(control + GENERATION * LINE, 1)
    result = f.call_pointer(function, I64, f.pointer(params), f.i64(0))
    # The caller reuses the job's memory: nobody may still look at it, not even inside a barrier.
    spin_until(f, lambda: f.load_atomic(control + DONE * LINE) >= threads - 1)
    f.exchange(control + DONE * LINE, 0)
    f.ret(result)


def _emit_serve(module: ir.Module) -> None:
    """``serve(control, worker, seen) -> generation``: run jobs until idle, then park.

    ``seen`` is the generation served last. Returns with the worker PARKED.
    """
    args = {"control": PTR, "worker": I64, "seen": I64}
    f = Function(module, "serve", args, I64, export=True)
    control, worker, seen0 = f.args()
    state = control + (worker + STATES) * LINE
    seen = f.stack(I64, 1, 8)
    f.store(seen0, seen, 8)
    with f.counted_forever() as (turn, parked):
        word = control + GENERATION * LINE
        generation = f.load_atomic(word)
        complete = (generation & 1).eq(0) & generation.ne(f.load(seen, I64, 8))
        with f.either(complete) as (job, none):
            with job:
                function = f.load_atomic(control + JOB_FUNCTION * LINE)
                params = f.load_atomic(control + JOB_PARAMS * LINE)
                threads = f.load_atomic(control + JOB_THREADS * LINE)
                with f.when(f.load_atomic(word).eq(generation)):
                    f.store(generation, seen, 8)
                    with f.when(worker < threads):
                        f.exchange(state, AWAKE)
                        f.call_pointer(function, I64, f.pointer(params), worker)
                        f.fetch_add(control + DONE * LINE, 1)
                    turn.restart()
            with none:
                relax(f)
        with f.when(turn >= IDLE):
            # PARKED already: an interrupted call released the lock once more than it summoned.
            idle = f.compare_exchange(state, AWAKE, PARKED) | f.load_atomic(state).eq(PARKED)
            f.leave(parked, idle)
    f.ret(f.load(seen, I64, 8))


def _emit_member(module: ir.Module) -> None:
    """``member(work)``: what each thread of a team does, nothing if the team is too small."""
    f = Function(module, "member", {"work": PTR}, export=True)
    (work,) = f.args()
    threads = f.load(work + TEAM_THREADS * LINE, I64, 8)
    # An int: the upper half of what the call returns is undefined.
    size = f.call_pointer(f.load(work + TEAM_SIZE * LINE, I64, 8), I64) & 0xFFFFFFFF
    with f.when(size >= threads):
        thread = f.fetch_add(work + TEAM_TICKET * LINE, 1)
        with f.when(thread < threads):
            function = f.load(work + TEAM_FUNCTION * LINE, I64, 8)
            params = f.load(work + TEAM_PARAMS * LINE, I64, 8)
            result = f.call_pointer(function, I64, f.pointer(params), thread)
            with f.when(thread.eq(0)):
                f.store(result, work + TEAM_RESULT * LINE, 8)
    f.ret()
