"""Machine code of kernels, compiled once per content: it is kept in the cache of compiled objects.

And what its compiler said of it.
"""

from __future__ import annotations

from autofuse.cost_models.compiled import CompiledFacts, LaunchFacts
from autofuse.host import elf
from autofuse.host.objectcache import ObjectCache, cache_directory, object_key
from autofuse.targets.cuda.codegen.cudakernel import CudaKernel
from autofuse.targets.cuda.nvrtc import OPTIONS, Compiled, compile_source, parse_resources, version

_LENGTH = 8


def machine_code(source: str, arch: str, name: str) -> Compiled:
    """CUDA C compiled for `arch`, now or by an earlier process. Raises BackendError as `compile_source` does."""
    cache = ObjectCache(cache_directory())
    key = object_key("cuda", source, arch, ".".join(map(str, version())), *OPTIONS)
    kept = cache.get(key)
    if kept is not None:
        end = _LENGTH + int.from_bytes(kept[:_LENGTH], "little")
        log = kept[_LENGTH:end].decode()
        found = Compiled(arch, kept[end:], parse_resources(log), log)
        if found.is_told:  # an older version kept empty logs, too
            return found
    made = compile_source(source, arch, f"{name}.cu")
    log = made.log.encode()
    cache.put(key, len(log).to_bytes(_LENGTH, "little") + log + made.cubin)
    return made


def facts_of(kernel: CudaKernel) -> CompiledFacts:
    """What ptxas and the machine code tell of a kernel's launches. Raises BackendError for what NVRTC refuses.

    ptxas does not say in which loops it spills.
    """
    made = machine_code(kernel.source, kernel.arch, kernel.name)
    sizes = {symbol.name: symbol.size for symbol in elf.functions(made.cubin)}
    needed = [(launch, made.resources[launch.function]) for launch in kernel.launches]
    return CompiledFacts(
        tuple(
            LaunchFacts(
                registers=used.registers,
                spill_bytes=used.spill_bytes,
                private_bytes=used.stack_bytes,
                shared_bytes=launch.shared_bytes + used.shared_bytes,
                code_bytes=sizes.get(launch.function),
            )
            for launch, used in needed
        )
    )
