// The worked numbers of the schemes of distances: Shaw, relative, Transformer-XL, T5, KERPLE, Sandwich, FIRE, YaRN and
// drawn positions; the tables of T5's buckets and of YaRN's frequencies.
#include "tests/nn/positional/worked/worked.h"

using namespace whence;
using namespace whence::test;

namespace {

const std::map<std::string, std::string> shaw_letters{{"aK", "key_table"}, {"aV", "value_table"}},
    table{{"e", "table"}}, xl_letters{{"u", "content_bias"}, {"vb", "position_bias"}, {"Wr", "relative_projection"}},
    t5_letters{{"table", "table"}}, kerple_log{{"r1", "strength"}, {"r2", "rate"}},
    kerple_power{{"r1", "strength"}, {"r2", "exponent"}},
    fire_letters{{"f_w1", "in.weight"}, {"f_b1", "in.bias"}, {"f_w2", "out.weight"}, {"f_b2", "out.bias"},
        {"f_c", "distance_scale"}, {"f_Lmul", "threshold_scale"}};
const std::vector<Intermediate> bias{{"bias", "bias"}}, rotated{{"q_rot", "rotated_q"}, {"k_rot", "rotated_k"}};

// No probe has Shaw's rows and T5's buckets, which are integers. Test cases below compare them.
const WorkedFamily family({{"shaw_causal", "shaw(clip=2)", shaw_letters, {}, {"idx"}},
    bidirectional({"shaw_bidirectional", "shaw(clip=2)", shaw_letters, {}, {"idx"}}), {"relative", "relative", table},
    {"relative_unseen_zero", "relative(rows=2)", table}, {"relative_capped", "relative(rows=2, capped=yes)", table},
    {"transformer_xl", "transformer_xl", xl_letters, {{"R", "sinusoids"}}},
    {"t5_bias_causal", "t5(buckets=4, max_distance=8)", t5_letters, {}, {"bucket"}},
    bidirectional({"t5_bias_bidirectional", "t5(buckets=8, max_distance=8)", t5_letters, {}, {"bucket"}}),
    {"kerple_log", "kerple", kerple_log, bias}, {"kerple_power", "kerple(form=power)", kerple_power, bias},
    {"sandwich", "sandwich(dim=8)", {}, bias}, kinked({"fire", "fire(width=3, init_length=2)", fire_letters, bias}),
    {"fire_no_tie", "fire(width=3, init_length=1.5)", fire_letters, bias},
    {"rope_yarn", "yarn(factor=4, original=512)", {}, rotated},
    {"rand_ape_learned", "absolute(rows=16)", {{"P", "table"}}}, {"rand_ape_sinusoidal", "sinusoidal(layout=concat)"},
    {"rand_rope_interleaved", "rope(layout=interleaved)", {}, rotated},
    bidirectional({"rand_alibi_bidirectional", "alibi", {}, bias}),
    bidirectional({"rand_relative_bidirectional", "transformer_xl", xl_letters}),
    {"rand_kerple_log", "kerple", kerple_log}, {"rand_fire", "fire(width=3, init_length=2.5)", fire_letters}});

// Returns the bias for one query at 0 and keys at -distance, one head of four dims.
Tensor bias_at(const PositionalScheme& scheme, const std::vector<double>& distances, bool causal) {
  AttendContext at;
  const auto count = static_cast<index_t>(distances.size());
  at.causal = causal;
  at.positions.query = Tensor::zeros({1}, DType::f64);
  at.positions.key = Tensor::of(distances, {count}, DType::f64) * -1.0;
  at.content_scores = Tensor::zeros({1, 1, 1, count}, DType::f64);
  return reshape(dynamic_cast<const BiasesScores&>(scheme).bias(at), {count});
}

// Checks T5's buckets in the file, by distance. Every row has its own number, so that the bias is the bucket's number.
void check_buckets(const json& table_of_file, bool causal) {
  const auto scheme = parse_schemes("t5")[0].make({4, 1, 8});
  scheme->to(DType::f64);
  raw::copy_into(reshape(Tensor::arange(32, DType::f64), {32, 1}), parameter(*scheme, "table"));
  std::vector<double> distances, buckets;
  for (const auto& [distance, bucket] : table_of_file.items()) {
    distances.push_back(std::stod(distance) * (causal ? 1 : -1));  // the file's second table is by j - i
    buckets.push_back(bucket.get<double>());
  }
  REQUIRE(distances.size() > 15);
  CHECK(bias_at(*scheme, distances, causal).to_vector() == buckets);
}

}  // namespace

TEST_CASE("worked examples: Shaw, relative, Transformer-XL, T5, KERPLE, Sandwich, FIRE, YaRN, drawn positions") {
  check_worked(family);
}

TEST_CASE("T5's buckets of the worked table") {
  check_buckets(worked_file().at("t5_bucket_32_128_causal"), true);
  check_buckets(worked_file().at("t5_bucket_32_128_bidirectional_relpos"), false);
}

TEST_CASE("worked examples of T5 and Shaw: buckets and rows of all pairs") {
  for (const Setting& setting : family.settings) {
    const json& outputs = worked_json(setting.name).at("outputs");
    if (!outputs.contains("bucket") && !outputs.contains("idx")) continue;
    CAPTURE(setting.name);
    // Row n of T5's table, and of Shaw's keys for a query of ones, is n.
    const Example it(setting);
    const bool shaw = outputs.contains("idx");
    const auto parameters = it.stages().schemes.at(0)->parameters();
    const Tensor rows = parameters.at(0).tensor;
    raw::copy_into(reshape(Tensor::arange(rows.size(0), DType::f64), {-1, 1}) *
                       Tensor::full(rows.shape(), shaw ? 0.5 : 1, DType::f64),
        rows);
    AttendContext at;
    static_cast<Sequence&>(at) = it.sequence();
    at.scale = 1;
    at.unrotated_query = Tensor::full({1, 2, 4, 2}, 1, DType::f64);
    at.content_scores = Tensor::zeros({1, 2, 4, 4}, DType::f64);
    const Tensor found = select(select(it.stages().biases.at(0).scheme->bias(at), 0, 0), 0, 0);
    CHECK(distance(masked(found, it.mask()), masked(worked_tensor(outputs.at(shaw ? "idx" : "bucket")), it.mask())) <
          worked_tolerance);
  }
}

TEST_CASE("YaRN's frequencies and magnitude of the worked table") {
  const json& wanted = worked_file().at("yarn_d64");
  const std::vector<double> frequencies = wanted.at("inv_freq").get<std::vector<double>>();
  const auto scheme = parse_schemes("yarn(factor=4, original=512)")[0].make({64, 1, 8});
  // At position 1 pair m of a query (1, 0) becomes mu (cos theta_m, sin theta_m).
  Tensor query =
             concat_along(3, {Tensor::full({1, 1, 1, 32}, 1, DType::f64), Tensor::zeros({1, 1, 1, 32}, DType::f64)}),
         key = query;
  AttendContext context;
  context.positions.query = context.positions.key = Tensor::full({1}, 1, DType::f64);
  dynamic_cast<const RotatesQueryKey&>(*scheme).rotate(query, key, context);
  const std::vector<double> turned = query.to_vector();
  REQUIRE(frequencies.size() == 32);
  for (std::size_t m = 0; m < 32; ++m) {
    CHECK(std::fabs(std::atan2(turned[m + 32], turned[m]) - frequencies[m]) < 1e-15);
    CHECK(std::fabs(std::hypot(turned[m], turned[m + 32]) - wanted.at("mscale").get<double>()) < 1e-14);
  }
}
