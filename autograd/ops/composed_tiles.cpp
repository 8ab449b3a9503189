// The equations of tensor/tiled_attention.h and tensor/tiled_mix.h, term by term.
#include "autograd/ops/composed_tiles.h"

#include <algorithm>

#include "autograd/ops.h"
#include "tensor/pairs.h"
#include "tensor/raw.h"

namespace whence::tiled {
namespace {

using At = TiledOperands;
using Operands = TiledFacts::Operands;

Tensor run_from(index_t first, index_t count) {
  const Tensor tokens = Tensor::empty({1, count}, DType::i64);
  for (index_t k = 0; k < count; ++k) tokens.data<index_t>()[k] = first + k;
  return tokens;
}

// Queries against a number of columns: the keys, or where a mix has hidden numbers.
struct Pairs {
  const TiledFacts& at;
  index_t queries, columns;
  Tensor query_step, key_step;  // i64 [1|b i], [1|b columns]

  Pairs(const TiledFacts& facts, const Operands& x, index_t count, const Tensor& query = {}, const Tensor& key = {})
      : at(facts),
        queries(x[At::query].size(2)),
        columns(count),
        query_step(query.defined() ? query : run_from(facts.first_row, queries)),
        key_step(key.defined() ? key : run_from(0, columns)) {}

  // bool [1|b 1 i j]; under a causal mask up to `back` keys in front of the query
  Tensor seen(const Tensor& present, index_t back = 0) const {
    const Tensor keys = present.defined() ? raw::unsqueeze(raw::unsqueeze(present, 1), 1) : present;
    Band band = Band::of(at.first_row, at.causal, at.window);
    band.first_row -= back, band.before -= back;
    return raw::band_mask(queries, columns, band, keys, Device::cpu());
  }

  // Each pair's number in rows of which the first is of `lowest` steps, and 0 behind their last: [h n] -> [1|b h i j].
  Tensor read(const Tensor& rows, index_t lowest) const {
    const Steps all = Steps::of(query_step, key_step, false);
    const index_t behind = std::max<index_t>(0, all.lowest + all.count - lowest - rows.size(1));
    const Tensor none = Tensor::zeros({rows.size(0), behind}, rows.dtype());
    return by_distance(behind > 0 ? concat_along(1, {rows, none}) : rows,
        {query_step, key_step, lowest, rows.size(1) + behind, false});
  }

  // p_i.r[i - j]: p [b h i d], r [1|h n d]
  Tensor by_row(const Tensor& p, const Tensor& r, double scale) const {
    const Tensor none = Tensor::zeros({r.size(0), 1, r.size(2)}, r.dtype());
    const Tensor all = matmul(p, transpose(concat_along(1, {r, none})), scale);  // [b h i n+1], the last of all 0
    std::vector<double> places;
    for (index_t i = 0; i < queries; ++i)
      for (index_t j = 0; j < columns; ++j) {
        const index_t place = at.first_row + i - j - at.lowest;
        places.push_back(static_cast<double>(place < 0 || place > r.size(1) ? r.size(1) : place));
      }
    return gather(all, 3, Tensor::of(places, {1, 1, queries, columns}, DType::i64));
  }

  // slope a + offset of a's piece, a = row_i distance[i - j]
  Tensor pieces(const Operands& x) const {
    const Tensor a = unsqueeze(x[At::piece_row], 3) * read(unsqueeze(x[At::piece_distance], 0), at.lowest);
    const std::vector<double> begins = x[At::piece_begins].to_vector();
    std::vector<double> of_pairs = a.to_vector();
    for (double& each : of_pairs)  // begins[n] < a <= begins[n + 1]; the first is never asked
      each = static_cast<double>(std::lower_bound(begins.begin() + 1, begins.end(), each) - begins.begin() - 1);
    const Tensor piece = Tensor::of(of_pairs, a.shape(), DType::i64);
    const auto of_piece = [&](const Tensor& numbers) {  // [h s] -> [b h i j]
      const Shape all{a.size(0), a.size(1), a.size(2), numbers.size(1)};
      return gather(expand(unsqueeze(numbers, 1), all), 3, piece);
    };
    return of_piece(x[At::piece_slopes]) * a + of_piece(x[At::piece_offsets]);
  }

  // Softmax over what is seen, beside a sink where there is one.
  Tensor of_logits(const Tensor& logits, const Tensor& sink) const {
    const Tensor mask = seen(at.present);
    if (!sink.defined()) return softmax(logits, mask);
    const Shape column{logits.size(0), logits.size(1), logits.size(2), 1};
    const Tensor always = Tensor::ones({mask.size(0), 1, mask.size(2), 1}, DType::boolean);
    const Tensor all = concat_along(3, {logits, expand(reshape(sink, {1, -1, 1, 1}), column)});
    return slice(softmax(all, concat_along(3, {mask, always})), 3, 0, columns);
  }

  // Each key breaks its share off what later keys leave of the stick; the rest, where that is wanted, is the row's own.
  Tensor stick(const Tensor& logits, bool rest_to_self) const {
    const Tensor before = seen(at.present, 1);
    const Tensor broken = masked(softplus(logits) * -1.0, before), up_to = reverse_cumulative_sum(broken);
    const Tensor weights = masked(sigmoid(logits) * exp(up_to - broken), before);
    if (!rest_to_self) return weights;
    const Tensor rest = expand(exp(slice(up_to, 3, 0, 1)), logits.shape());
    return weights + (masked(rest, seen(at.present)) - masked(rest, before));
  }

  // P v, and the weights themselves
  std::pair<Tensor, Tensor> attend(Tensor weights, const Tensor& value) const {
    if (at.dropout > 0) weights = dropout(weights, at.dropout, at.stream, {at.first_row, at.total_rows, columns});
    return {matmul(weights, value), weights};
  }
};

Tensor scores(const TiledFacts& at, const Operands& x) { return matmul(x[At::query], transpose(x[At::key]), at.scale); }

// CoPE's sum of gates from key to query, read in a table; or times a slope.
Tensor scan(const TiledAttention& at, const Operands& x, const Tensor& content, const Tensor& seen) {
  const Tensor of_gates =
      x[At::gate_query].defined() ? matmul(x[At::gate_query], transpose(x[At::gate_key]), at.gate_scale) : content;
  const Tensor positions = reverse_cumulative_sum(masked(sigmoid(of_gates), seen));
  if (x[At::position_slopes].defined()) return reshape(x[At::position_slopes], {1, -1, 1, 1}) * positions;
  const Tensor z = x[At::position_logits].defined()
                       ? x[At::position_logits]
                       : matmul(x[At::query], transpose(x[At::position_keys]), at.position_scale);
  return lerp_at(z, clamp_max(positions, static_cast<double>(z.size(3) - 1)));
}

// Which of u's tables each column of hidden reads, [e b 1 1 c], 1 or 0: column c has min(c - first, left) columns on its
// left, from the first key that is present on. Before that one and behind the last there is none.
Tensor tables_of_columns(const TiledMix& at, index_t keys) {
  const Tensor present = at.present.defined() ? at.present : Tensor::ones({1, keys}, DType::boolean);
  const index_t batch = present.size(0), columns = keys + at.behind;
  const Tensor tables = Tensor::zeros({at.left + 1, batch, 1, 1, columns}, DType::f64);
  for (index_t b = 0; b < batch; ++b) {
    const bool* row = present.data<bool>() + b * keys;
    const index_t first = std::find(row, row + keys, true) - row;
    index_t end = keys;
    while (end > first && !row[end - 1]) --end;
    for (index_t c = first; c < (end == keys ? columns : end); ++c)
      tables.data<double>()[(std::min(c - first, at.left) * batch + b) * columns + c] = 1;
  }
  return tables;
}

}  // namespace

Tensor composed_form(const TiledAttention& at, const Operands& x) {
  const Tensor content = scores(at, x);
  const Pairs pairs(at, x, x[At::key].size(2), at.query_step, at.key_step);
  if (content.numel() == 0) {
    const Shape none{content.size(0), content.size(1), content.size(2), at.bins};
    return concat_along(3, {matmul(content, x[At::value]), Tensor::zeros(none, content.dtype())});
  }
  const Tensor seen = pairs.seen(at.present);
  Tensor logits = content;
  if (x[At::distance_table].defined()) logits = logits + pairs.read(x[At::distance_table], at.lowest);
  if (x[At::piece_begins].defined()) logits = logits + pairs.pieces(x);
  if (x[At::relative_query].defined())
    logits = logits + pairs.by_row(x[At::relative_query], x[At::relative_keys], at.relative_scale);
  if (x[At::column_term].defined()) logits = logits + unsqueeze(x[At::column_term], 2);
  if (x[At::position_logits].defined() || x[At::position_keys].defined() || x[At::position_slopes].defined())
    logits = logits + scan(at, x, content, seen);
  const auto [output, weights] = pairs.attend(
      at.stick ? pairs.stick(logits, at.rest_to_self) : pairs.of_logits(logits, x[At::sink]), x[At::value]);
  if (at.bins == 0) return output;
  const Steps steps{pairs.query_step, pairs.key_step, at.lowest, at.bin_of.numel(), false};
  const Tensor bins = raw::read_by_distance(steps, raw::unsqueeze(at.bin_of, 0));
  return concat_along(3, {output, sum_by_index(weights, bins, at.bins)});
}

Tensor composed_form(const TiledMix& at, const Operands& x) {
  const Tensor content = scores(at, x);
  if (content.numel() == 0) return matmul(content, x[At::value]);
  const index_t keys = x[At::key].size(2);
  const Pairs pairs(at, x, keys), hidden_pairs(at, x, keys + at.behind);
  const Tensor seen = pairs.seen(at.present);
  const bool has_pieces = x[At::piece_begins].defined();
  const Tensor bias = has_pieces ? pairs.pieces(x) : Tensor();
  const Tensor channels = has_pieces ? concat_along(1, {content, bias}) : content;
  const Tensor taps =
      convolve_keys(masked(channels, seen), unsqueeze(x[At::mix_input], 2), Tensor(), at.left, at.right + at.behind);
  const Tensor tables = tables_of_columns(at, keys);
  Tensor hidden = taps;
  for (index_t e = 0; e <= at.left; ++e)
    hidden = hidden + hidden_pairs.read(select(x[At::mix_table], 0, e), at.table_lowest) *
                          raw::cast(raw::select(tables, 0, e), taps.dtype());
  const Tensor there = raw::cast(raw::reduce(Reduction::sum, tables, {0}, false), taps.dtype());
  hidden = leaky_relu(hidden, at.slope) * there;
  if (at.remask) hidden = masked(hidden, hidden_pairs.seen({}));
  Tensor logits =
      content + convolve_keys(hidden, unsqueeze(x[At::mix_output], 2), Tensor(), at.left, at.right - at.behind);
  if (has_pieces && at.adds_pieces) logits = logits + bias;
  if (x[At::distance_table].defined()) logits = logits + pairs.read(x[At::distance_table], at.lowest);
  return pairs.attend(pairs.of_logits(logits, {}), x[At::value]).first;
}

}  // namespace whence::tiled
