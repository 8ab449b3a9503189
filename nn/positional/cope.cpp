// Contextual Position Encoding: positions count the tokens that the query finds relevant.
//                                                                     Golovneva et al. 2024, arXiv:2405.18719
//   g_ij   = sigmoid(q_i.k_j / sqrt(d)), 0 where masked        near 1 if key j counts for query i        (Eq. 3)
//   p_ij   = min(sum_{l=j..i} g_il, p_max)                     number of keys that count, j to i         (Eq. 4)
//   z_i[n] = q_i.e[n]                                          one number per integer position           (Eq. 7)
//   A_ij   = S_ij + (1-w) z_i[floor p] + w z_i[ceil p],  w = p - floor p                             (Listing 1)
// The gradient comes back from dA through the ops of these lines; each op's backward is in autograd/ops/:
//   dp_ij     = (z_i[ceil p] - z_i[floor p]) dA_ij,   0 at an integer position          lerp_at.cpp, to the position
//   dz_i[n]   = sum of (1-w) dA_ij where n = floor p, and of w dA_ij where n = ceil p   lerp_at.cpp, to the table
//   dp_ij     = 0 where the sum passes p_max                                            unary.cpp, clamp_max
//   dg_il     = sum_{j<=l} dp_ij                                                        cumulative_sum.cpp
//   dlogit_ij = g_ij (1 - g_ij) dg_ij,   0 where masked                                 unary.cpp, sigmoid
//   de[n]     = sum_i dz_i[n] q_i,   dq_i = sum_n dz_i[n] e[n]                           matmul.cpp
// So gradients die in the gates as long as e is zero, as it is initially; at p_max; at integer positions; in saturated
// gates. Equations 5 and 8 swap the two weights; the authors ran Listing 1 (nn/errata.md, A1).
// The last equation is implemented once for each way to compute it. A test compares each with the one before:
//   here -> autograd/ops/lerp_at.cpp -> tensor/kernels/lerp.cpp, cuda/kernels/lerp.cu
//   in tiles: here -> tests/tensor/cpu/tiles/rung.h, one query -> tensor/cpu/tiles/programs/row_scan.h
//             on a GPU: cuda/kernels/tiles/gate_scan.h
//   for learners: cuda/ladder/cope.cu, cope_attention.cu
#include "nn/positional/cope.h"

#include "autograd/observer.h"
#include "autograd/ops.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {

CoPE::CoPE(const SchemeArguments& arguments)
    : Contextual(arguments),
      p_max_(arguments.number("p_max")),
      position_query_(arguments),
      as_printed_(arguments.word("interpolation") == "equation5"),
      table_(param("table", {arguments.integer("p_max") + 1, arguments.sizes().head_dim()}, Init::zeros())) {
  if (one_table(arguments) && arguments.word("gates") == "separate_keys") {
    throw InputError(
        "cope: table=shared with gates=separate_keys given; a scheme that serves all layers has no keys of one layer; "
        "table=per_layer required");
  }
}

bool CoPE::one_table(const SchemeArguments& arguments) { return arguments.word("table") == "shared"; }

// With a rotated query q.e depends on the query's position.
Claims CoPE::claims() const {
  return {.causal_only = true,
      .shift_invariant = !position_query_.rotated,
      .uses_positions = false,
      .reads_x = makes_keys(),
      .by_key_head = makes_keys()};
}
void CoPE::check_company(const Stages& stages) const { position_query_.check_company("cope", stages); }

// Sums of gates, for cope_mlp and cope_alibi too: [b h i j]
Tensor Contextual::sums_of_gates(const AttendContext& context) const {
  const Tensor logits = probe("gate_logits", gate_scores(context));  // q_i.k_j / sqrt(d)
  const Tensor g = probe("gates", context.masked(sigmoid(logits)));  // Eq. 3
  return reverse_cumulative_sum(g, -1, true);                        // Eq. 4
}

static Tensor mirrored(const Tensor& p);  // the erratum, below

// s:[b h i j]   ->   s + interpolated q.e:[b h i j]
Tensor CoPE::transform_scores(const Tensor& s, const AttendContext& context) const {
  const Tensor p = probe("positions", clamp_max(sums_of_gates(context), p_max_));  // Eq. 4, [b h i j]
  const Tensor z = probe("z", position_logits(context));                           // Eq. 7, [b h i n]
  // (1-w) z[floor p] + w z[ceil p]: Listing 1, [b h i j]
  return s + probe("position_logit", lerp_at(z, as_printed_ ? mirrored(p) : p));
}

// z, [b h i n]
Tensor CoPE::position_logits(const AttendContext& context) const {
  return matmul(position_query_.of(context), transpose(table_), position_query_.scale(context));
}

// ---- The erratum and the same in tiles: readers may stop here. ----

// Reading at floor p + ceil p - p swaps the two weights, as Eq. 5 prints them. Integer positions are
// unchanged, so the result jumps at each of them.
static Tensor mirrored(const Tensor& p) {
  const Tensor values = p.detach(), floor = raw::cast(raw::cast(values, DType::i64), p.dtype());
  const Tensor whole = raw::binary("cope", functions::GreaterEqual{}, floor, values);  // 1 at integers, else 0
  return floor * 2.0 + 1.0 - whole - p;
}

void CoPE::add_to_tiles(TileTerms& terms, const AttendContext& context) const {
  if (as_printed_) return terms.refuse("interpolation=equation5 given; interpolation=listing required");
  add_gates(terms, context);
  if (position_query_.of(context).identity() != context.query.identity())
    terms.add(TiledOperands::position_logits, position_logits(context));
  else  // q.e is computed by the programs
    terms.add(TiledOperands::position_keys, table_, position_query_.scale(context));
}

SchemeInfo CoPE::info() {
  return {.name = "cope",
      .aliases = {"contextual"},
      .title = "Contextual Position Encoding",
      .paper = "Golovneva et al. 2024, arXiv:2405.18719",
      .equation = "A_ij = S_ij + q_i.e[p_ij],  p_ij = sum_{l=j..i} sigmoid(q_i.k_l / sqrt(d))",
      .options = {option::integer("p_max", 64, {1, 1e6}, "largest position; the table has p_max + 1 rows"),
          Contextual::gates_option(), PositionQuery::scale_option(), PositionQuery::from_option(),
          option::words("table", {"per_layer", "shared"}, "one e per layer, or one e for all"),
          option::words("interpolation", {"listing", "equation5"},
              "listing, or the swapped weights of Eq. 5 as printed, to see the error")},
      .knob = "gates",
      .picture = SchemeInfo::positions,
      .probes = Contextual::probes("p_ij = min(sum_{l=j..i} g_il, p_max)  (CoPE, Eq. 4)", "p_max",
          {{"z", "b h i n", "the score of query i at each whole position",
               "z_i[n] = q_i.e[n], by sqrt(d) with z_scale=head  (CoPE, Eq. 7)"},
              {"position_logit", "b h i j", "the position's term of the logit",
                  "(1-w) z_i[floor p] + w z_i[ceil p],  w = p - floor p  (CoPE, Listing 1)"}}),
      .shared = CoPE::one_table,
      .variants = {"cope(p_max=2)", "cope(p_max=3, gates=separate_keys)", "cope(p_max=3, gates=values, z_scale=head)",
          "cope(p_max=3, table=shared)", "cope(p_max=3, interpolation=equation5)", "cope(p_max=2) + rope",
          "cope(p_max=2, z_from=rotated) + rope"},
      .make = make_scheme<CoPE>};
}

static const RegisterScheme registered{CoPE::info()};

}  // namespace whence
