// CDAPE (DAPE V2): the scores of all heads are a feature map, which two convolutions along the keys adapt.
//                                                                             Zheng et al. 2024, arXiv:2410.04798
//   X = tril([S, B]),  h = leaky_relu(conv(X; W1, b1)),  A = S + B + conv(h; W2, b2)
//   X = tril(S) over a base without a bias
//   conv: y[o,i,j] = b[o] + sum_c sum_{t<k} w[o,c,t] x[c,i,j+t-left], zeros outside
//         left = k/2, or k - 1 with pad=left
// The kernel is 1 x k: rows never mix. So row i depends only on keys up to i, although h has k/2 columns after i
// (nn/errata.md, C2). How many such columns there are depends on the end of the run: its last k/2 rows change when it
// continues. There are three ways out (nn/errata.md, C3). `remask` blanks these columns, `pad=left` never reads them,
// and decoding computes the columns of a longer run: there X is 0, and h is leaky_relu(b1 + the part of X that the
// kernel reaches).
// Columns of padding are 0 in X and in h, like the border of an unpadded run. tril=no is the authors' leakage
// experiment: row i then sees keys up to i + k - 1, and B of later keys is that of distance 0.
// Gradients die: b2 moves whole rows, which softmax ignores; leaky_relu passes a hundredth
// below 0; tril stops what it blanks.
#include <algorithm>

#include "autograd/linear_map.h"
#include "autograd/observer.h"
#include "autograd/ops.h"
#include "nn/positional/adaptive.h"
#include "tensor/error.h"
#include "tensor/raw.h"

namespace whence {
namespace {

enum class Tril : unsigned char { causal, always, never };

struct CdapeOptions {
  explicit CdapeOptions(const SchemeArguments& arguments)
      : kernel(arguments.integer("kernel")),
        symmetric(arguments.word("pad") == "symmetric"),
        remask(arguments.yes("remask")),
        tril(arguments.word("tril") == "no"       ? Tril::never
             : arguments.word("tril") == "always" ? Tril::always
                                                  : Tril::causal) {
    for (const char* option : {"pad", "remask", "tril"})
      if (kernel == 1) arguments.refuse_if_given(option, "with kernel=1, where a key sees itself alone");
    for (const char* option : {"remask", "tril"})
      if (!symmetric) arguments.refuse_if_given(option, "with pad=left, which never looks at later keys");
    if (tril == Tril::never) arguments.refuse_if_given("remask", "with tril=no, which leaves nothing to blank");
    if (symmetric && kernel % 2 == 0)
      throw InputError("cdape: kernel ", kernel, " with pad=symmetric given; an odd kernel required, or pad=left");
  }
  index_t reach() const { return symmetric ? kernel / 2 : 0; }  // keys after its own that a column reads
  bool sees_border() const { return reach() > 0 && !remask; }   // true if the last rows depend on the end of the run

  index_t kernel;
  bool symmetric, remask;
  Tril tril;
};

// A convolution along the keys with its parameters, initialised as in PyTorch.
class KeyConvolution final : public Module {
 public:
  KeyConvolution(index_t inputs, index_t outputs, index_t kernel)
      : weight_(param("weight", {outputs, inputs, 1, kernel}, Init::fan_in(inputs * kernel))),
        bias_(param("bias", {outputs}, Init::fan_in(inputs * kernel), false)) {}

  Tensor operator()(const Tensor& x, index_t left, index_t right) const {
    return convolve_keys(x, weight_, bias_, left, right);
  }
  const Tensor& weight() const { return weight_; }
  const Tensor& bias() const { return bias_; }

 private:
  Tensor weight_, bias_;  // [o c 1 k], [o]
};

class Cdape final : public Adaptive {
 public:
  explicit Cdape(const SchemeArguments& arguments)
      : Adaptive("cdape", arguments),
        options_(arguments),
        hidden_(has_bias() ? 2 * arguments.sizes().heads : arguments.sizes().heads, arguments.integer("width"),
            options_.kernel),
        output_(arguments.integer("width"), arguments.sizes().heads, options_.kernel) {
    child("hidden", hidden_);
    child("output", output_);
  }

  Claims claims() const override {
    Claims claims = base().claims();
    claims.prefix_consistent = claims.prefix_consistent && !options_.sees_border();
    claims.sees_no_future = claims.sees_no_future && options_.tril != Tril::never;
    claims.mask_per_head = false;
    return claims;
  }

  // a:[b h i j]   ->   a + B + conv(h):[b h i j]
  Tensor map_scores(const Tensor& a, const AttendContext& context) const override {
    if (options_.tril == Tril::never && context.keys_behind > 0) {
      fail("cdape",
          "tril=no in decoding given; a row would need keys that are not there yet; full passes or tril=causal "
          "required");
    }
    if (context.given_mask.defined() && context.given_mask.rank() > 2 && context.given_mask.size(-3) > 1) {
      throw InputError("cdape: a mask of ", context.given_mask.shape(),
          " given; one for all heads, [1|b 1 i j], required: ",
          "a convolution mixes the heads, and nobody says what a blank in one of them means for the others");
    }
    const Tensor& s = context.content_scores;
    const Tensor bias = has_bias() ? base_bias(context) : Tensor();                           // [1|b h i j]
    const Tensor x = probe("conv_in", blanked(has_bias() ? channels(s, bias) : s, context));  // [b 2h|h i j]
    const index_t k = options_.kernel, right = options_.reach(), left = k - 1 - right;
    // The number of columns of h after the last key, if the run continues.
    const index_t behind = options_.sees_border() ? std::min(context.keys_behind, right) : 0;
    const Tensor h = probe(
        "conv_hidden", blanked_hidden(leaky_relu(hidden_(x, left, right + behind)), context));  // [b d i j+behind]
    const Tensor f = probe("conv_bias", output_(h, left, right - behind));                      // [b h i j]
    return has_bias() ? a + bias + f : a + f;
  }

 private:
  // Returns b1 + W1 B for a column with `there` columns on its left, by distance from -right on: [1 d right+n]. A row
  // of B, from its largest distance down to 0, is convolved like a row of attention.
  Tensor table_of(const TileTerms& base, index_t there, index_t left, index_t right, index_t heads) const {
    const index_t width = hidden_.bias().size(0), count = base.distances->values.size(0);
    const Tensor b1 = reshape(exact(hidden_.bias()), {1, width, 1}),
                 &table = base.operands[TiledOperands::distance_table];
    if (!table.defined()) return expand(b1, {1, width, right + count});
    const Tensor weight = exact(slice(slice(hidden_.weight(), 1, heads, 2 * heads), 3, left - there, options_.kernel));
    const Tensor row = reshape(backwards(exact(table)), {1, heads, 1, count});
    const Tensor made = convolve_keys(row, weight, {}, there, 2 * right);  // [1 d 1 n+right]
    return b1 + unsqueeze(backwards(reshape(made, {width, count + right})), 0);
  }
  // Reverses the rows: x [r n] -> x[r, n - 1 - .]
  static Tensor backwards(const Tensor& x) {
    const auto reversed = [](const Tensor& of) {
      const index_t row = of.strides()[0], step = of.strides()[1];
      return raw::contiguous(of.view(of.shape(), {row, -step}, (of.size(1) - 1) * step));
    };
    return linear_map(
        "backwards", Site::current(), x, reversed, [](const Tensor& dy, const Shape&) { return backwards(dy); });
  }

  // Returns 0 where the mask hides: above the diagonal and in padding. Without tril, and in models that are not causal,
  // only padding is hidden.
  Tensor blanked(const Tensor& x, const AttendContext& context) const {
    if (options_.tril == Tril::never)
      return context.present.defined() ? masked(x, context.on_device(context.present)) : x;
    Sequence seen = context;
    seen.causal = context.causal || options_.tril == Tril::always;
    return seen.masked(x);
  }

  // h has columns after the last key, for keys to come, which no mask covers.
  Tensor blanked_hidden(const Tensor& h, const AttendContext& context) const {
    if (options_.remask) return blanked(h, context);
    if (!context.present.defined()) return h;
    const index_t keys = context.present.size(-1), behind = h.size(3) - keys;
    const Tensor now = masked(slice(h, 3, 0, keys), context.on_device(context.present));  // [b d i j]
    return behind ? concat_along(3, {now, slice(h, 3, keys, keys + behind)}) : now;
  }

  // ---- The same in tiles: readers may stop here. ----
  // The first convolution of [S, B] is that of S and the pieces of B, plus a table by distance. Near the left border it
  // misses taps of B, so the table differs: one for each number of columns to the left.
  void add_to_tiles(TileTerms& terms, const AttendContext& context) const override {
    const index_t k = options_.kernel, right = options_.reach(), left = k - 1 - right;
    if (options_.tril == Tril::never || (!context.causal && (k > 1 || options_.tril == Tril::always)))
      return terms.refuse("cdape without a causal mask given; later keys blanked, or kernel 1, required");
    const auto base = base_terms(terms, context);
    if (!base) return;
    // [o c 1 k] -> [o c k], a view, so that its gradient is not copied as select's is
    const auto without_rows = [](const Tensor& weight) { return reshape(weight, weight.shape().without(2)); };
    Network network{.output = without_rows(output_.weight()),
        .output_bias = output_.bias(),
        .left = left,
        .right = right,
        .behind = options_.sees_border() ? std::min(context.keys_behind, right) : 0,
        .remask = options_.remask};
    if (add_made(terms, *base, without_rows(hidden_.weight()), hidden_.bias(), network)) return;
    const index_t heads = context.query.size(1);
    std::vector<Tensor> tables;
    for (index_t there = 0; there <= left; ++there) tables.push_back(table_of(*base, there, left, right, heads));
    const index_t channels = base->has(TiledOperands::piece_begins) ? 2 * heads : heads;
    network.hidden = without_rows(slice(hidden_.weight(), 1, 0, channels));
    network.table = concat_along(0, tables);
    add_network(terms, *base, network);
  }

  CdapeOptions options_;
  KeyConvolution hidden_, output_;  // W1 [d c 1 k], b1 [d]; W2 [h d 1 k], b2 [h]
};

const RegisterScheme registered{{.name = "cdape",
    .aliases = {"dape_v2"},
    .title = "DAPE V2: attention scores as feature maps",
    .paper = "Zheng et al. 2024, arXiv:2410.04798",
    .equation = "A = S + B + conv(leaky_relu(conv(tril [S, B]))), both of 1 by k along the keys, heads as channels",
    .options = {option::integer("width", 32, {1, 65536}, "channels between the convolutions"),
        option::integer("kernel", 3, {1, 63}, "keys that a tap row spans; odd, or any with pad=left"),
        option::words("pad", {"symmetric", "left"}, "zeros on both sides, or k - 1 on the left"),
        option::yes_no("remask", "yes: blank later keys between the convolutions too"),
        option::words("tril", {"causal", "always", "no"},
            "blank later keys first: in causal models, in others too, or never (which leaks)")},
    .knob = "hidden.weight 3=1",
    .picture = SchemeInfo::taps,
    .probes = {{"conv_in", "b c i j",
                   "the map before the first convolution: scores and biases of all heads, later keys blanked",
                   "X = tril([S, B])  (DAPE V2, Eq. 5)"},
        {"conv_hidden", "b c i j", "the map between the convolutions",
            "h = leaky_relu(conv(X; W1, b1))  (DAPE V2, Eq. 5)"},
        {"conv_bias", "b h i j", "the convolutions' term of the logit", "conv(h; W2, b2)  (DAPE V2, Eq. 5)"}},
    .takes_base = true,
    .shared = [](const SchemeArguments&) { return false; },  // convolutions per layer, even if the base is shared
    .variants = {"cdape(none, width=3)", "cdape(rope, width=3)", "cdape(alibi, width=3)",
        "cdape(alibi, width=3, kernel=1)", "cdape(alibi, width=3, kernel=5)", "cdape(alibi, width=3, kernel=7)",
        "cdape(alibi, width=3, remask=yes)", "cdape(alibi, width=3, pad=left)",
        "cdape(none, width=3, kernel=2, pad=left)", "cdape(alibi, width=3, tril=no)",
        "cdape(alibi, width=3, tril=always)", "cdape(kerple, width=3)", "cdape(fire(init_length=3), width=3)"},
    .make = make_scheme<Cdape>}};

}  // namespace
}  // namespace whence
