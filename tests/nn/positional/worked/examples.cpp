// The worked numbers of single schemes: none, absolute ones, ALiBi, rotary ones, and CoPE as in its paper. Checks that
// every example of the file is run, and ALiBi's slopes. The other families have a file each.
#include "nn/positional/alibi_slopes.h"
#include "tests/nn/positional/worked/worked.h"

using namespace whence;
using namespace whence::test;

namespace {

const std::map<std::string, std::string> cope_letters{{"e", "table"}};
const std::vector<std::string> cope_unseen{"pos_raw", "z"};
const std::vector<Intermediate> bias{{"bias", "bias"}}, rotated{{"q_rot", "rotated_q"}, {"k_rot", "rotated_k"}},
    cope_seen{{"gates", "gates"}, {"pos", "positions"}, {"cope_bias", "position_logit"}},
    cope_and_rope_seen{{"pos", "positions"}, {"cope_bias", "position_logit"}};

Setting cope(const std::string& name, const std::string& scheme) {
  return {name, scheme, cope_letters, cope_seen, cope_unseen};
}

std::vector<Setting> settings() {
  std::vector<Setting> all{{"nope", "none"}, {"ape_learned", "absolute(rows=6)", {{"P", "table"}}},
      {"ape_sinusoidal_interleaved", "sinusoidal"}, {"ape_sinusoidal_concat", "sinusoidal(layout=concat)"},
      {"alibi_causal", "alibi", {}, bias}, bidirectional({"alibi_bidirectional_ruoss", "alibi", {}, bias}),
      {"rope_half", "rope", {}, rotated}, {"rope_interleaved", "rope(layout=interleaved)", {}, rotated},
      {"rope_pi", "interpolated(rope, factor=4)", {}, rotated}, cope("cope_listing1", "cope(p_max=2)"),
      cope("cope_noclamp", "cope(p_max=4)"), cope("cope_val_gates", "cope(p_max=2, gates=values)"),
      {"cope_shared_two_layers", "cope(p_max=2)", cope_letters},
      {"cope_plus_rope", "cope(p_max=2) + rope", cope_letters, cope_and_rope_seen},
      {"cope_plus_rope_zrot", "cope(p_max=2, z_from=rotated) + rope", cope_letters, cope_and_rope_seen}};
  Setting ram = cope("cope_ram_default", "cope(p_max=2, z_scale=head)");
  ram.intermediates.back().factor =
      1 / std::sqrt(2.0);  // the file has q.e before scaling, our probe has the bias added to the scores
  Setting separate = cope("cope_sep_keys", "cope(p_max=2, gates=separate_keys)");
  separate.identity = "gate_key";
  all.insert(all.end(), {ram, separate, kinked(cope("cope_saturated", "cope(p_max=3)"))});
  return all;
}

const WorkedFamily family(settings());

}  // namespace

TEST_CASE("worked examples: none, absolute, ALiBi, rotary, CoPE") { check_worked(family); }

TEST_CASE("worked examples: every one of the file is run by one of these tests") {
  std::vector<std::string> run = WorkedFamily::names(), listed;
  for (const json& each : worked_file().at("examples")) listed.push_back(each.at("name"));
  REQUIRE(listed.size() == 75);
  std::string wrong;
  for (const std::string& name : listed)
    if (std::count(run.begin(), run.end(), name) != 1) wrong += " " + name;
  CHECK_MESSAGE(wrong.empty(), "not run exactly once:" << wrong);
  CHECK(run.size() == listed.size());
}

TEST_CASE("ALiBi's slopes for every number of heads in the table") {
  CHECK(worked_file().at("alibi_slopes").size() == 10);
  for (const auto& [heads, slopes] : worked_file().at("alibi_slopes").items()) {
    const auto count = static_cast<index_t>(slopes.size());
    CHECK(heads == std::to_string(count));
    const std::vector<double> found = alibi_slopes(count);
    for (std::size_t h = 0; h < found.size(); ++h) CHECK(std::fabs(found[h] - slopes[h].get<double>()) < 1e-15);
  }
}
