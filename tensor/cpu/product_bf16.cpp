// Products whose f32 operands are rounded to bf16 as they are packed. A pair of neighbours along the inner axis is
// packed where f32 keeps one number; VDPBF16PS multiplies pairs and adds both products to a sum in f32.
#ifdef __x86_64__
#define WHENCE_TILES_TARGET product_bf16
#include "tensor/cpu/product_loops.h"

namespace whence::products {
namespace {

using namespace products::product_bf16;

using V = Vector<float>;  // here 16 pairs, moved about as bits; of sums, 16 numbers
constexpr int width = lanes<float>;

struct MultiplyAddPairs {
  WHENCE_INLINE V step(V left, V right, V sum) {
    return reinterpret_cast<V>(_mm512_dpbf16_ps(
        reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(left), reinterpret_cast<__m512bh>(right)));
  }
};

WHENCE_INLINE unsigned first_bits(extent count) { return (1U << most(0, least(count, width))) - 1; }

// 16 pairs of the first `count` numbers of 32 in a row, then zeros.
WHENCE_INLINE V pairs_in_row(const float* from, extent count) {
  const V low = load_some(from, first_bits(count)), high = load_some(from + width, first_bits(count - width));
  return reinterpret_cast<V>(_mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(high), reinterpret_cast<__m512>(low)));
}

// A step of a panel: 16 lines of b, or the 8 that a panel of a has.
WHENCE_INLINE void store_step(float* to, V pairs, extent pitch) {
  if (pitch >= width)
    store(to, pairs);
  else
    _mm256_storeu_ps(to, _mm512_castps512_ps256(reinterpret_cast<__m512>(pairs)));
}

// `lines` lines, 16 at most, and zeros for the others. Pairs of one line are `pitch` apart.
void pack_lines(const Operand<float>& from, extent lines, extent depth, extent pitch, float* to) {
  if (from.across == 1) {
    const unsigned some = first_bits(lines);
    for (extent k = 0; k < depth; k += 2, to += pitch) {
      const float* at = from.at + k * from.along;
      const __m512i low = reinterpret_cast<__m512i>(load_some(at, some)),
                    high = reinterpret_cast<__m512i>(load_some(at + from.along, k + 1 < depth ? some : 0));
      // The numbers of both rows, rounded, are the lower and the upper halves of pairs.
      const auto rounded = [](__m512i x) {
        return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(x))));
      };
      store_step(to, reinterpret_cast<V>(_mm512_or_si512(rounded(low), _mm512_slli_epi32(rounded(high), 16))), pitch);
    }
    return;
  }
  for (extent k = 0; k < depth; k += 2 * width) {
    V square[width];
#pragma GCC unroll 16
    for (int line = 0; line < width; ++line)
      square[line] = line < lines ? pairs_in_row(from.at + line * from.across + k, depth - k) : V{};
    transpose<float>(square);
    const extent pairs = least(parts_of(depth - k, 2), width);
    for (extent pair = 0; pair < pairs; ++pair) store(to + (k / 2 + pair) * pitch, square[pair]);
  }
}

void pack_b(const Operand<float>& from, extent columns, extent depth, float* to) {
  const extent pairs = parts_of(depth, 2);
  for (extent column = 0; column < columns;) {
    const extent panel = panel_of<float>(columns - column);
    float* const there = to + column * pairs;
    for (extent v = 0; v < panel; v += width, column += width)
      pack_lines({from.at + column * from.across, from.across, from.along}, columns - column, depth, panel, there + v);
  }
}

// Rows that are contiguous along the inner axis stay so, `pitch` apart.
void pack_rows(const Operand<float>& from, extent rows, extent depth, extent pitch, float* to) {
  for (extent row = 0; row < rows; ++row)
    for (extent k = 0; k < depth; k += 2 * width)
      store(to + row * pitch + k / 2, pairs_in_row(from.at + row * from.across + k, depth - k));
}

}  // namespace

void multiply_bf16(const Tile<float>& tile, float* scratch) {
  constexpr extent block = block_of_rows<float>, longest = 2 * deepest;
  float *const packed_a = scratch, *const packed_b = scratch + deepest * block;
  const extent slabs = parts_of(tile.depth, longest), deep = parts_of(parts_of(tile.depth, slabs), 2) * 2;
  for (extent first = 0; first < tile.depth; first += deep) {
    const extent depth = least(deep, tile.depth - first), pairs = parts_of(depth, 2);
    const Finish<float> finish{tile.alpha, first + depth == tile.depth ? tile.bias : nullptr, first > 0};
    pack_b({tile.b.at + first * tile.b.along, tile.b.across, tile.b.along}, tile.columns, depth, packed_b);
    for (extent row = 0; row < tile.rows; row += block) {
      const extent rows = least(block, tile.rows - row);
      const Operand<float> a{tile.a.at + row * tile.a.across + first * tile.a.along, tile.a.across, tile.a.along};
      if (a.along == 1) {
        const extent pitch = parts_of(pairs, width) * width;
        pack_rows(a, rows, depth, pitch, packed_a);
        multiply_block<MultiplyAddPairs, 1, float>(
            {packed_a, rows_at_once * pitch, pitch}, packed_b, tile, row, rows, pairs, finish);
      } else {
        for (extent panel = 0; panel < rows; panel += rows_at_once)
          pack_lines({a.at + panel, 1, a.along}, rows - panel, depth, rows_at_once, packed_a + panel * pairs);
        multiply_block<MultiplyAddPairs, rows_at_once, float>(
            {packed_a, rows_at_once * pairs, 1}, packed_b, tile, row, rows, pairs, finish);
      }
    }
  }
}

}  // namespace whence::products
#endif
