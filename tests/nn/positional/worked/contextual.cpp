// The worked numbers of CoPE's variants, hard attention, DAPE and CDAPE. CoPE itself is among
// tests/nn/positional/worked/examples.cpp.
#include "tests/nn/positional/worked/worked.h"

using namespace whence;
using namespace whence::test;

namespace {

using Letters = std::map<std::string, std::string>;

const Letters network{{"w1", "hidden.weight"}, {"b1", "hidden.bias"}, {"w2", "output.weight"}, {"b2", "output.bias"}};
const std::vector<Intermediate> base_bias{{"bias", "base.bias"}};

// Returns the letters of f and of the inner scheme.
Letters over(Letters base) {
  base.insert(network.begin(), network.end());
  return base;
}
const Letters over_none = over({}), over_kerple = over({{"r1", "base.strength"}, {"r2", "base.rate"}}),
              over_fire = over({{"f_w1", "base.in.weight"}, {"f_b1", "base.in.bias"}, {"f_w2", "base.out.weight"},
                  {"f_b2", "base.out.bias"}, {"f_c", "base.distance_scale"}, {"f_Lmul", "base.threshold_scale"}});

std::vector<Setting> contextual() {
  const std::vector<Intermediate> seen{{"gates", "gates"}, {"pos", "positions"}, {"cope_bias", "position_logit"}};
  const std::vector<Intermediate> no_gates{{"pos", "positions"}, {"cope_bias", "position_logit"}},
      counted{{"pos", "positions"}};
  const std::vector<std::string> unseen{"pos_raw", "z"};
  const Letters sum{{"e", "cope.table"}, {"r", "relative.table"}}, slopes{{"m", "slopes"}};
  Setting ram{"cope_plus_relative_ram", "cope(p_max=2, z_scale=head) + relative", sum, seen, unseen};
  ram.intermediates.back().factor =
      1 / std::sqrt(2.0);  // the file has q.e before scaling, our probe has the bias added to the scores
  const Letters network_of_one{
      {"m_w1", "hidden.weight"}, {"m_b1", "hidden.bias"}, {"m_w2", "output.weight"}, {"m_b2", "output.bias"}};
  return {{"cope_eq5_literal", "cope(p_max=2, interpolation=equation5)", {{"e", "table"}}, seen, unseen},
      {"cope_mlp", "cope_mlp(width=3)", network_of_one, no_gates},
      {"cope_alibi_minus", "cope_alibi(slopes=learned)", slopes, counted},
      {"cope_alibi_plus_literal", "cope_alibi(slopes=learned, sign=plus)", slopes, counted},
      {"cope_plus_relative", "cope(p_max=2) + relative", sum, seen, unseen}, ram,
      {.name = "hard_attention_ste", .scheme = "hard_attention", .exact_gradient = false}};
}

std::vector<Setting> dape() {
  std::vector<Setting> all{{"dape_nope", "dape(none, width=3)", over_none},
      {"dape_rope", "dape(rope, width=3)", over_none},
      {"dape_kerple_concat_residual_batch2", "dape(kerple, width=3)", over_kerple, base_bias}};
  const std::map<std::string, std::pair<std::string, Letters>> bases{{"alibi", {"alibi", over_none}},
      {"kerple", {"kerple", over_kerple}},
      {"fire", {"fire(init_length=1.5, width=3, activation=leaky_relu)", over_fire}}};
  for (const auto& [base, how] : bases) {
    for (const auto& [form, ours] : Letters{{"add_residual", "add_residual"}, {"concat", "concat"},
             {"concat_residual", "concat_residual"}, {"f_of_B", "f_of_bias"}}) {
      const std::string scheme = "dape(" + how.first + ", width=3, form=" + ours + ")";
      all.push_back({"dape_" + base + "_" + form, scheme, how.second, base_bias});
    }
  }
  return all;
}

std::vector<Setting> cdape() {
  const auto kerple = [](const std::string& name, const std::string& options) -> Setting {
    return {name, "cdape(kerple, width=3, " + options + ")", over_kerple, base_bias};
  };
  std::vector<Setting> all{kerple("cdape_kerple_k3_remask", "kernel=3, remask=yes"),
      kerple("cdape_kerple_k3_leftpad", "kernel=3, pad=left"), kerple("cdape_kerple_k3_leak", "kernel=3, tril=no"),
      {"cdape_alibi_k3", "cdape(alibi, width=3)", over_none, base_bias},
      {"cdape_fire_k3", "cdape(fire(init_length=1.5, width=3, activation=leaky_relu), width=3)", over_fire, base_bias},
      {"cdape_rope_k3", "cdape(rope, width=3)", over_none}};
  for (const std::string k : {"1", "3", "5", "7"}) {
    all.push_back(kerple("cdape_kerple_k" + k, "kernel=" + k));
    all.push_back({"cdape_nope_k" + k, "cdape(none, width=3, kernel=" + k + ")", over_none});
  }
  return all;
}

const WorkedFamily contextual_family(contextual()), dape_family(dape()), cdape_family(cdape());

}  // namespace

TEST_CASE("worked examples: variants of CoPE, hard attention") { check_worked(contextual_family); }

TEST_CASE("worked examples: DAPE") { check_worked(dape_family); }

TEST_CASE("worked examples: CDAPE") { check_worked(cdape_family); }
