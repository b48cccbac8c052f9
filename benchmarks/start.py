"""How long a start takes where the processor is scarce or pods are many, and the memory it needs.

The operator is launched as in the image, with byte code and without `site`, with default flags, on
a fake API server. `warm`: its files are in the page cache, and the Secret holds a certificate where
there are webhooks. `cold`: as the first start on a node, files come from the disk and the Secret is
empty. Where this machine allows no quota, there are no figures of one.
"""

import asyncio
import compileall
import os
import re
import sys
import sysconfig
import time
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from benchmarks.figures import Figure, Result
from benchmarks.processes import ROOT, Target, open_server, read_memory, read_time
from tests.contained import limit_processor
from tests.world.operatorproc import TLS_FLAG, OperatorProcess

SHARE: Final = 0.1
LIMITS_S: Final = {"warm": 3.0, "cold": 4.0}
# With a whole core, of few pods and of many: seconds and MiB.
FEW: Final = (0.35, 54.0)
MANY: Final = (3.0, 80.0)
IDLE_S: Final = 15.0
POLL_S: Final = 0.1
_ENTER: Final = ("sh", "-euc", 'echo $$ > "$0/cgroup.procs"; exec "$@"')
_PACKAGES: Final = sysconfig.get_path("purelib")
_PROGRAM: Final = f"""
import sys
sys.path[:0] = {[str(ROOT), _PACKAGES]!r}
from rollout_operator.cli.main import main
sys.exit(main())
"""
_OPERATOR: Final = (sys.executable, "-IBSc", _PROGRAM)
# Modules that are never imported: `image/assemble` leaves them as source, too.
_GENERATED: Final = re.compile("kubernetes_asyncio/client/(models|api)/")


async def measure(*, small: bool) -> Result:
    """Measure a start with few pods, some under a quota, then one with very many pods."""
    few, many = (6, 60) if small else (200, 20_000)
    _compile()
    async with open_server(few) as target:
        figures = await _measure_whole(target, few, FEW)
    for hooks in ("", "_webhooks"):
        async with open_server(few) as target:
            for state, limit in reversed(LIMITS_S.items()):  # the first start leaves a Secret
                figures += await _measure_share(target, f"{state}{hooks}", limit)
    async with open_server(many) as target:
        figures += await _measure_whole(target, many, MANY, TLS_FLAG)
    setting = {"pods": [few, many], "share_of_a_core": SHARE}
    return Result(benchmark="start", setting=setting, figures=figures)


async def _measure_share(target: Target, what: str, limit: float) -> list[Figure]:
    flags = (TLS_FLAG,) if what.endswith("_webhooks") else ()
    if what.startswith("cold"):
        _forget_files()
    with limit_processor(SHARE) as group:
        if group is None:
            return []
        command = (*_ENTER, str(group), *_OPERATOR)
        launch = replace(target.launch(*flags), command=command)
        async with OperatorProcess(launch) as operator:
            # Seldom, since each answer costs a part of the share.
            while not await operator.is_ready():  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
            ready = time.monotonic() - operator.started_at
            cpu = read_time(operator.child.pid).cpu
    return [
        Figure(
            name=f"ready_{what}_s",
            value=ready,
            means=f"from the start of the process until /ready says yes, {SHARE:g} of a core",
            at_most=limit,
        ),
        Figure(
            name=f"ready_{what}_cpu_s",
            value=cpu,
            means="the processor time of its main thread, without the process for certificates",
        ),
    ]


def _compile() -> None:
    for folder in (ROOT / "rollout_operator", _PACKAGES):
        compileall.compile_dir(folder, quiet=2, rx=_GENERATED)


def _forget_files() -> None:
    """Drop what the page cache holds of Python and packages; what other processes map stays."""
    library = Path(os.__file__).parent
    for folder in {library, Path(sys.prefix), ROOT / "rollout_operator"}:
        for path in folder.rglob("*"):
            if path.is_file():
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


async def _measure_whole(
    target: Target, pods: int, limits: tuple[float, float], *flags: str
) -> list[Figure]:
    launch, also = replace(target.launch(*flags), command=_OPERATOR), " and webhooks" * bool(flags)
    async with OperatorProcess(launch) as operator:
        ready = (await operator.wait_ready()).total_seconds()
        spent = read_time(operator.child.pid)
        await asyncio.sleep(IDLE_S)
        memory = read_memory(operator.child.pid)
    return [
        Figure(
            name=f"ready_{pods}_pods_s",
            value=ready,
            means=f"from the start until /ready says yes, {pods} pods{also}",
        ),
        Figure(
            name=f"ready_{pods}_pods_unstarved_s",
            value=ready - spent.starved,
            means="of these, without the time for which it wanted a core and had none",
            at_most=limits[0],
        ),
        Figure(
            name=f"ready_{pods}_pods_cpu_s",
            value=spent.cpu,
            means="of these, the processor time of the operator",
        ),
        Figure(
            name=f"rss_{pods}_pods_mib",
            value=memory["now"],
            means=f"resident memory {IDLE_S:g} s later",
            at_most=limits[1],
        ),
        Figure(
            name=f"rss_{pods}_pods_most_mib", value=memory["most"], means="the most it ever was"
        ),
    ]
