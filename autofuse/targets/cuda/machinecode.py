"""Machine code of kernels, compiled once per content: it is kept in the cache of compiled objects."""

from __future__ import annotations

from autofuse.host.objectcache import ObjectCache, cache_directory, object_key
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
        return Compiled(arch, kept[end:], parse_resources(log), log)
    made = compile_source(source, arch, f"{name}.cu")
    log = made.log.encode()
    cache.put(key, len(log).to_bytes(_LENGTH, "little") + log + made.cubin)
    return made
