"""CPU target: kernels generated with LLVM for the machine at hand (AVX2, AVX-512, NEON)."""
