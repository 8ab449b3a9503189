// The head mix forward, which walks up the keys by segments. X and hidden exist for one segment and the kernel - 1
// columns before it; softmax and the sum of values continue from segment to segment, as for one head.
#pragma once

#include "tensor/cpu/tiles/mix_columns.h"

namespace whence::tiles::WHENCE_TILES_TARGET {

// Queries of a block in forward, and pairs of a segment. X, hidden and logits of all heads for 1024 pairs stay in the
// second cache, and the work per segment outweighs its start and the columns kept.
template <class T> inline constexpr extent mix_block = has_vectors<T> ? block_rows<T> / 2 : 2;
template <class T> inline constexpr extent segment_pairs = has_vectors<T> ? 1024 : 8;

template <class T> struct MixForward {
  Piecewise<T> pieces;
  T *queries, *scores, *hidden, *logits, *output, *top, *total, *factor;
  extent row;  // of scores, hidden and logits

  extent layout(const Problem<T>& p, T* at) {
    Cutter<T> cut{at};
    row = segment_pairs<T> + 2 * p.kernel * mix_block<T>;
    queries = cut.take(p.heads * p.dim * mix_block<T>);
    scores = cut.take(p.channels * row), logits = cut.take(p.heads * row);
    hidden = cut.take(p.width * row);
    output = cut.take(p.heads * mix_block<T> * padded<T>(p.value_dim));
    top = cut.take(p.heads * block_rows<T>), total = cut.take(p.heads * block_rows<T>);
    factor = cut.take(block_rows<T>);
    pieces.take(cut, p, false, p.heads);
    return cut.taken;
  }
  RunningSoftmax<T> softmax(extent h) const { return {top + h * block_rows<T>, total + h * block_rows<T>, factor}; }
};

template <class T> static void mix_forward(const Problem<T>& p, extent b, extent first_query, T* scratch) {
  const MixBlock<T> part(p, b, first_query, mix_block<T>);
  MixForward<T> f;
  f.layout(p, scratch);
  const extent segment = max(1, segment_pairs<T> / part.wide), kept = p.kernel - 1, width = padded<T>(p.value_dim);
  f.pieces.hold(p, 0, p.heads);
  for (extent h = 0; h < p.heads; ++h) {
    f.pieces.block(part.of_head(h));
    pack_transposed(head_of(p.in[At::query], b, h) + first_query * p.in[At::query].row, p.in[At::query].row,
        part.block.rows, p.dim, part.wide, p.scale, f.queries + h * p.dim * part.wide);
    f.softmax(h).begin();
  }
  clear(f.output, p.heads * part.wide * width);
  // Scores run `right` columns ahead of hidden, and hidden ahead of the logits.
  const extent kept_scores = kept + p.right;
  Columns<T> hidden{f.hidden, part.first_seen - p.left, f.row, part.wide},
      scores{f.scores, part.first_seen - p.left, f.row, part.wide};
  for (extent begin = part.first_seen; begin < part.keys; begin += segment) {
    const bool first = begin == part.first_seen;
    const extent base = hidden.first, end = min(begin + segment, part.keys);
    const extent new_scores = first ? base : base + kept_scores, scores_end = base + kept_scores + segment;
    score_columns(part, f.queries, p.in[At::key], p.dim, new_scores, scores_end, scores, false);
    piece_columns(part, f.pieces, new_scores, scores_end, scores);
    hidden_columns(part, scores, first ? base : base + kept, base + kept + segment, hidden);
    const Columns<T> logits{f.logits, begin, f.row, part.wide};
    mixed_logits(part, scores, hidden, begin, end, logits);
    for (extent h = 0; h < p.heads; ++h) {
      const QueryBlock<T> block = part.of_head(h);
      const Tile<T> tile(block, begin, end - begin);
      T *x = logits(h, begin), *output = f.output + h * part.wide * width;
      if (f.softmax(h).add(tile, x)) f.softmax(h).fade(block.rows, width, output);
      drop(tile, x);
      sum_over_keys(
          tile, x, head_of(p.in[At::value], b, h) + begin * p.in[At::value].row, p.in[At::value].row, width, output);
    }
    carry(p.channels, kept_scores, segment, scores);
    carry(p.width, kept, segment, hidden);
  }
  for (extent h = 0; h < p.heads; ++h) f.softmax(h).write(part.of_head(h), f.output + h * part.wide * width, width);
}

}  // namespace whence::tiles::WHENCE_TILES_TARGET
