"""CUDA C++ for an epilogue: one struct that a kernel is instantiated with.

``struct_text`` puts it together: of ``memory`` (parameters, values in registers, loads, stores),
``wide`` (loads of 16 bytes), ``body`` (the arithmetic, of ``expression``) and ``partials`` (what
rows and columns reduce to). ``params`` fills its argument on the host, ``names`` has names and
types, ``prelude.cuh`` what is the same for all.

The contract, for a kernel whose threads hold float32 accumulators in adjacent pairs (as the
fragments of WGMMA lie in registers)::

    struct Epilogue {
      static constexpr bool has_row_partials, has_column_partials;
      struct Params;          // kernel argument: operands, outputs and partials; filled by the host
      struct Scalars, Row, Column, Tile;    // values of operands, in registers
      struct Outputs;         // float <name>[lanes] for each tile output
      struct RowValues;       // float <name>[lanes] for each partial result of rows
      struct RowPartials, ColumnPartials;   // start as the results of nothing

      // Values of operands, to be loaded as seldom as the kernel's loops allow: once per tile,
      // once per pair of columns, once per row, once per pair of accumulators.
      static Scalars load_scalars(const Params& p, int batch);
      static void    load_row(const Params& p, int batch, int col, int ahead, Row& values);
      static Column  load_column(const Params& p, int batch, int row);
      static void    load_tile(const Params& p, int batch, int row, int col, int ahead,
                               Tile& values);
      // What load_tile reads of `columns` columns, to L2; nothing depends on it.
      static void prefetch_tile(const Params& p, int batch, int row, int col, int columns);
      // Operands that four lanes load for each other, of n pairs, 8 columns apart, in two rows:
      // load_fours fills in what settle_fours, which all lanes of a warp call, then exchanges.
      static void load_fours<n>(const Params& p, int batch, const int (&rows)[2], int col,
                                Tile (&tiles)[n][2]);
      static void settle_fours<n>(Tile (&tiles)[n][2]);
      // Operands of which a lane loads eight adjacent columns, four pairs, at once; of two rows.
      static void load_row_eights(const Params& p, int batch, int col, Row* pairs);
      static void load_tile_eights(const Params& p, int batch, const int (&rows)[2], int col,
                                   Tile (*pairs)[2]);

      // The arithmetic: acc[0] is element (row, col) of the product, acc[1] is (row, col + 1).
      static void apply(const Params&, int row, int col, const float (&acc)[2], const Scalars&,
                        const Row&, const Column&, const Tile&, Outputs&, RowValues&,
                        ColumnPartials&);
      // All of the above, for a kernel without loops to lift loads out of.
      static void run(const Params&, int batch, int row, int col, const float (&acc)[2], Outputs&,
                      RowPartials&, ColumnPartials&);

      // Outputs straight to memory; a kernel that stages one through shared memory reads
      // outputs.<name> instead and leaves its pointer null.
      static void store_<name>(const Params& p, int batch, int row, int col, const Outputs&);
      static void store(const Params& p, int batch, int row, int col, const Outputs&);   // each

      // Partial results. Of rows, the values of many calls are folded at once, `nothing` in the
      // place of what does not count; of columns, apply folds. Combine threads by from_lane and
      // merge, write one per tile (or warp; a block is whatever the kernel counts). values[j] is of
      // the pair of columns begin + 8 j; with ``eights``, of begin + 32 (j / 4) + 2 (j % 4).
      static RowValues nothing();
      template <int n> static void fold(RowPartials& into, const RowValues (&values)[n],
                                        const Column&, int begin);
      static void merge(RowPartials& into, const RowPartials& other);
      static RowPartials from_lane(const RowPartials& x, int mask);         // __shfl_xor_sync
      static void store_row_partials(const Params&, int batch, int row, int block,
                                     const RowPartials&);
      // The same for ColumnPartials, which belong to the columns of one pair:
      static void store_column_partials(const Params&, int batch, int block, int col,
                                        const ColumnPartials&);
      // Of rows, the kernel may also finish: a warp reads the partial results that all warps wrote
      // (behind a fence), merges them, and writes each row's result.
      static RowPartials load_row_partials(const Params&, int batch, int row, int block);
      static void store_row_results(const Params&, int batch, int row, const RowPartials&);
    };

The host fills ``Params`` with ``params.pack_params``. A tile operand that a kernel brings to
shared memory itself is left out of ``load_tile`` and ``prefetch_tile``: it fills that member of
``Tile`` from there. ``load_fours`` is for operands that repeat along the columns, one value for
each pair (`wide.can_be_fours`): lane l of a warp holds pairs that begin at columns 2 (l % 4)
and multiples of 8 further on, so that four lanes need 16 values of each 32 columns, which they load
16 bytes each. A kernel whose lanes hold eight adjacent columns instead names the operands that have
16 bytes for these (`wide.can_be_eights`): ``load_row_eights`` and ``load_tile_eights`` fill
them in.

Rules. ``col`` is even, ``row < M`` and ``col < N``: a kernel does not call for padding, which would
enter the partial results. Rows and tiles are loaded for column ``col + ahead``, which lies within
the same ``SPAN`` columns, counted from a multiple of them. ``col + 1 == N`` may happen if N is odd
(``Instance.even`` is false): the second accumulator is then ignored. Lanes are 2 for an output of N
columns, written to columns ``col`` and ``col + 1``; 1 for N/2, column ``col / 2``; 4 for 2N,
columns ``2 * col`` and on. Arithmetic is float32. Everything is in namespace ``tiercel``, includes
no header, and is forced inline, so that values that nothing reads cost nothing. ``row``, ``col``
and ``batch`` are below 2**31, offsets are 64-bit.

Row partials are complete per thread for one row: the pairs of a row fold into one
``RowPartials``; in a WGMMA fragment the masks that combine a row's four threads are 1 and 2. Column
partials belong to one pair of columns, so that a kernel with columns outside and rows inside holds
one at a time; the masks that combine the eight threads of a column are 4, 8 and 16. What is written
is finished by ``store_row_results`` in the kernel (results (B, M, 1), summed in the order of the
kernel's choice), or behind it as by ``reference.finish``: partials of rows are (B, M, blocks), of
columns (B, blocks, columns), float32; those of a log-sum-exp have pairs (largest, sum).
"""

from tiercel.lower.epilogue.cuda.struct_text import prelude, source

__all__ = ["prelude", "source"]
