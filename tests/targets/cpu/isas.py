"""The instruction sets that the generator knows, whatever machine the tests run on."""

from tiercel.targets.cpu.isa import Isa, from_features

AVX2: dict[str, bool] = dict.fromkeys(("sse4.2", "avx", "avx2", "fma", "f16c"), True)
AVX512 = AVX2 | dict.fromkeys(("avx512f", "avx512vl", "avx512dq", "avx512bw"), True)
CACHES = {1: 32 << 10, 2: 1 << 20, 3: 32 << 20}

ISAS: dict[str, Isa] = {
    isa.name: isa
    for isa in (
        from_features("x86_64-unknown-linux-gnu", "haswell", AVX2, CACHES),
        from_features("x86_64-unknown-linux-gnu", "skylake-avx512", AVX512, CACHES),
        from_features("aarch64-unknown-linux-gnu", "neoverse-n1", {"neon": True}, CACHES),
    )
}
